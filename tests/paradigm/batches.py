"""Adversarial batches shared by the mathematical tests: raw embeddings in float64."""

from isotrope.paradigm.proof import BATCHES, SHAPES, batch

__all__ = ["BATCHES", "SHAPES", "batch"]
