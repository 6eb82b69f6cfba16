"""Measures of embeddings as pure functions, one per file: alignment, uniformity, effective rank."""
