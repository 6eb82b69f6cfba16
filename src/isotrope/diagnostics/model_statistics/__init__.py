"""What Li et al. (2024) measure of the embeddings of a model on held-out sentences."""
