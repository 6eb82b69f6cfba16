"""Measures of embeddings as pure functions: alignment, uniformity, effective rank; one per file."""
