"""Li et al. 2024, A Unified Paradigm for Gradient: what the rows of its artifacts compute."""
