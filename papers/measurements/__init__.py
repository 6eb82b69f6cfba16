"""The kinds of measurement that a job can be: one file each, found by its name.

Each file has two functions. ``check(job, sources)`` resolves every name and setting of a job
without measuring anything, which is what a dry run does; ``run(job, sources, folder)`` measures,
going on from what it left in ``folder`` if it was stopped, and returns a Result.
"""
