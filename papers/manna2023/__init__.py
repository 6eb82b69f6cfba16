"""Manna et al. 2023, Mutual Information Optimization (MIO): its tables and figures."""
