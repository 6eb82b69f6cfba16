"""Floor 1: measures of embeddings as pure functions, one in each file."""
