"""MIO, Mutual Information Optimization (paper 004): tables and figures, a file each."""
