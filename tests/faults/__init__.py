"""Faults on purpose: runs that are killed, disks that fill up, folders that two want."""
