"""Text for benchmarks: docstrings (examples/docstrings.py), from any folder, and tables."""

import gzip
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from examples.docstrings import STANDARD_LIBRARY, collect, split

__all__ = ["STANDARD_LIBRARY", "collect", "fields", "split"]


def fields(file: Path) -> list[list[str]]:
    """Return the fields of each line of a tab-separated file, which may be compressed."""
    raw = file.read_bytes()
    text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode("utf-8")
    return [line.split("\t") for line in text.removesuffix("\n").split("\n")]
