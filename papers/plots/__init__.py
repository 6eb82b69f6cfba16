"""Charts and planes of measured numbers, with labels placed so that none overlap."""
