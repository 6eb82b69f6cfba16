"""Trainings with a known fault: some set the thresholds of the doctor, the others test them."""
