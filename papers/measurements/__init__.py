"""What jobs do: one file, one kind of measurement, found by its name.

Each has two functions. ``check(job, places)`` resolves every name and setting of a job without
measuring anything, which is what a dry run does; ``run(job, places, folder)`` measures, going on
from what it left in ``folder`` if it was stopped, and returns a Result.
"""
