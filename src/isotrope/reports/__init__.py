"""Writes reports: one self-contained HTML page from run folders, without any training."""
