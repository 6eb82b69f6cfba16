"""``isotrope report``: compare runs in one HTML file."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from isotrope.cli.arguments import Parser
from isotrope.core.run_folder import RunFolder

EPILOG = """\
examples:
  isotrope report runs/first
  isotrope report runs/* --diagnose
  isotrope report runs/* -o comparison.html --pictures comparison

The file needs no network and no other file: send it, open it anywhere. It includes what
`isotrope diagnose` has found about a run.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, write the report, print its path."""
    parser = Parser(
        prog="isotrope report",
        description="Compare runs in one self-contained HTML file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", type=Path, help="run folder, or folder with a metrics.csv"
    )
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
    parser.add_argument(
        "--diagnose",
        action="store_true",
        help="first diagnose the runs without a diagnosis, or with one older than their log",
    )
    parser.add_argument(
        "--plugin",
        metavar="FILE",
        action="append",
        default=[],
        help="Python file with the objective of a run, for --diagnose (one that only the run "
        "names is not executed)",
    )
    options = parser.parse_args(list(arguments))
    for run in options.runs:
        if not run.is_dir():
            parser.error(f"{run} is not a folder; give the --output folder of `isotrope train`")
    if options.diagnose:
        _diagnose(options.runs, options.plugin)
    from isotrope.reports.html import write_report

    replaced = options.output.exists()
    print(write_report(options.runs, options.output, pictures=options.pictures))
    if replaced:
        print("it replaces the file of that name; -o writes another", file=sys.stderr)
    return 0


def _diagnose(runs: Sequence[Path], plugins: Sequence[str]) -> None:
    """Diagnose the runs without a current diagnosis; print the verdicts on stderr."""
    from isotrope.diagnostics.target import diagnose

    for folder in runs:
        files = RunFolder(folder)
        log, diagnosis = files.metrics, files.diagnosis
        if not files.is_run or (
            diagnosis.exists() and diagnosis.stat().st_mtime >= log.stat().st_mtime
        ):
            continue
        print(f"{folder}:\n{diagnose(folder, plugins=plugins)}", file=sys.stderr)
