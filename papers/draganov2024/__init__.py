"""Draganov et al. 2024, The Hidden Pitfalls of the Cosine Similarity Loss: tables and figures."""
