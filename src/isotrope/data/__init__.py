"""Reads text and images from files, tokenises or decodes them, and makes batches."""
