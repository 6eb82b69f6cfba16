"""Computes the statistics of Li et al. (2024) on a model's embeddings of held-out sentences."""
