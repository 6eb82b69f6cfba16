"""Simulations on random or given angles, without a model."""
