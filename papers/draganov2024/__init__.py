"""The Hidden Pitfalls of the Cosine Similarity Loss (paper 003): its tables and figures."""
