"""Charts and planes of measured numbers, in which no label lies over another."""
