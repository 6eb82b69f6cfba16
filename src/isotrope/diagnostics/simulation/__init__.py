"""What objectives do to angles and embeddings that no model made: drawn, placed or free to move."""
