"""What cells do: one file, one kind of measurement, found by its name.

Each has two functions. ``check(cell, places)`` resolves every name and setting of a cell without
measuring anything, which is what a dry run does; ``run(cell, places, folder)`` measures, going on
from what it left in ``folder`` if it was stopped, and returns a Result.
"""
