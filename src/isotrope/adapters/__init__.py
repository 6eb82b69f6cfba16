"""Adapters to other libraries: the Doctor in any trainer, and sentence-transformers.

``doctor`` is the callback that diagnoses a training in any loop. ``sentence_transformers`` turns
objectives into losses and scores into evaluators. MTEB needs no adapter: it evaluates the
SentenceTransformer in ``isotrope.load(MODEL).model``.
"""
