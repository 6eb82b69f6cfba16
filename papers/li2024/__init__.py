"""Li et al. 2024, A Unified Paradigm for Gradient: its tables and figures, one per file."""
