"""Reads image sets from folders, files or by name, splits them, and makes augmented batches."""
