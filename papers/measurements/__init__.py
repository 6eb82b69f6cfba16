"""The measurements that a job can make: one kind per file, found by its name.

Each file has two functions. ``check(job, sources)`` resolves every name and setting of a job
without measuring anything, for a dry run; ``run(job, sources, folder)`` measures, resumes from the
files in ``folder`` if it was interrupted, and returns a Result.
"""
