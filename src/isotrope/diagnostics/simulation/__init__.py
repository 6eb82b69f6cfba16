"""Simulations without a model: angles that are random or given."""
