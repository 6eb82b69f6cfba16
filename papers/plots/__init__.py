"""Charts of measured numbers."""
