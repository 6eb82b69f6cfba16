"""Simulates objectives at random or given angles, without a model."""
