"""Floor 5: other people's loops and formats.

``sentence_transformers`` records the anatomy of a training by its trainer, ``lightning`` that of
anyone's LightningModule. ``mteb`` lets an encoder run in MTEB, and MTEB on STS sets that lie on
this machine. ``hub`` puts a model on the Hugging Face hub.
"""
