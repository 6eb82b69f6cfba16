"""Li et al. 2024, A Unified Paradigm for Gradient: each table and figure is a file here."""
