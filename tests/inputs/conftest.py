"""The command line in this process, as tests/cli has it."""

from tests.cli.conftest import run

__all__ = ["run"]
