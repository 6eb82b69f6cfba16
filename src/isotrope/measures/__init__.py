"""Floor 1: pure functions of embeddings, one measure in each file."""
