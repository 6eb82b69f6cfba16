"""``python -m isotrope``."""

from isotrope.cli.main import main

main()
