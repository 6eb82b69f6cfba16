"""Adapters to other libraries: sentence-transformers, any trainer's callbacks, MTEB and the hub.

``doctor`` is the callback that diagnoses a training in any loop. ``sentence_transformers`` turns
objectives into losses and scores into evaluators. ``mteb`` runs an encoder in MTEB, and MTEB on
local STS sets. ``hub`` uploads a model to the Hugging Face hub.
"""
