"""``isotrope search``: the lines of a file, or pictures of a folder, closest to a query."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from unicodedata import category

from isotrope.cli.arguments import Parser

EPILOG = """\
examples:
  isotrope search runs/wiki sentences.txt "what you are looking for" --top 5
  isotrope search runs/photos photos/ like-this.jpg
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, search, print score and text."""
    parser = Parser(
        prog="isotrope search",
        description="Find what is closest to a query, by cosine: text in a file, or pictures.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="model folder, run folder, hub id, or the installed all-MiniLM-L6-v2",
    )
    parser.add_argument(
        "file", metavar="FILE|FOLDER", type=Path, help="where to look: text, or pictures"
    )
    parser.add_argument("query", metavar="QUERY", help="a text, or the path of a picture")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="how many [10]")
    parser.add_argument("--columns", metavar="NAME", help="of .csv, .jsonl, .parquet")
    parser.add_argument("--pooling", metavar="NAME", help="instead of the model's own")
    parser.add_argument(
        "--device", default="auto", metavar="auto|cpu|cuda|mps", help="where to encode [auto]"
    )
    given = parser.parse_args(list(arguments))
    if given.top < 1:
        parser.error(f"--top must be 1 or more; found {given.top}")
    from isotrope.evaluation.files import search_file

    for score, line, text in search_file(
        given.model,
        given.file,
        given.query,
        top=given.top,
        columns=[given.columns] if given.columns else None,
        pooling=given.pooling,
        device=given.device,
        progress=True,
    ):
        print(f"{score:.4f}  {line}: {_one_line(text)}")
    return 0


def _one_line(text: str) -> str:
    """Return a text without what ends a line or steers a terminal, which are shown by number."""
    steering = ("Cc", "Zl", "Zp")
    return "".join(repr(c)[1:-1] if category(c) in steering else c for c in text)
