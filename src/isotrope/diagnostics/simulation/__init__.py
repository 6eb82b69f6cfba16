"""Simulations without a model, on random or given angles."""
