"""The docstrings of installed packages (examples/docstrings.py), from whatever folder one runs."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from examples.docstrings import STANDARD_LIBRARY, collect, split

__all__ = ["STANDARD_LIBRARY", "collect", "split"]
