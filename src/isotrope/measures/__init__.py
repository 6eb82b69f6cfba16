"""Measures of embeddings as pure functions, one in each file."""
