"""Connects isotrope with other libraries' trainers.

``doctor`` is the callback that diagnoses a training. ``sentence_transformers`` turns objectives
into losses, and evaluation protocols into evaluators. MTEB needs no adapter, because
``isotrope.load(MODEL).model`` is a SentenceTransformer.
"""
