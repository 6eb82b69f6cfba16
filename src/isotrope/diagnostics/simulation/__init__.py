"""Simulations without a model: angles that are drawn or given, and embeddings that move freely."""
