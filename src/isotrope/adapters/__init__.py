"""Adapters to other libraries: the Doctor in any trainer, and sentence-transformers.

``doctor`` is the callback that diagnoses a training. ``sentence_transformers`` turns objectives
into losses and evaluation protocols into evaluators. MTEB needs no adapter: it can evaluate
``isotrope.load(MODEL).model``, a SentenceTransformer.
"""
