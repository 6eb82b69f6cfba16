"""``isotrope report``: compare runs in one HTML file."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from isotrope.cli.arguments import Parser

EPILOG = """\
examples:
  isotrope report runs/first
  isotrope report runs/* -o comparison.html --pictures comparison

The file needs no network and no other file: send it, open it anywhere.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, write the report, print its path."""
    parser = Parser(
        prog="isotrope report",
        description="Compare runs in one self-contained HTML file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", type=Path)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("report.html"),
        help="[report.html]",
    )
    parser.add_argument(
        "--pictures",
        metavar="DIR",
        type=Path,
        help="also write every picture there, as SVG and as PNG",
    )
    given = parser.parse_args(list(arguments))
    from isotrope.report.html import write_report

    print(write_report(given.runs, given.output, pictures=given.pictures))
    return 0
