"""The statistics of Li et al. (2024) of a model's embeddings of held-out sentences."""
