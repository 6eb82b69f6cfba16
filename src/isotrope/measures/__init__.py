"""Floor 1: pure functions of embeddings: alignment, uniformity, norms."""
