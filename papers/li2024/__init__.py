"""A Unified Paradigm for Gradient (papers 000 and 002): tables and figures, a file each."""
