"""Manna et al. 2023, Mutual Information Optimization (MIO): each table and figure is a file."""
