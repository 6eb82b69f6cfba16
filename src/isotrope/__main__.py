"""Runs the command line as ``python -m isotrope``."""

from isotrope.cli.main import main

main()
