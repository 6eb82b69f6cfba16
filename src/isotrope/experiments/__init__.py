"""The experiment of ``isotrope demo``: search Python functions by their descriptions."""
