"""``isotrope report``: compare runs in one HTML file."""

import sys
from collections.abc import Sequence
from pathlib import Path

from isotrope.cli.command import Command
from isotrope.core.errors import InputError, place
from isotrope.core.run_folder import RunFolder
from isotrope.core.settings import Settings, Used, setting

EPILOG = """\
examples:
  isotrope report runs/first
  isotrope report runs/* --diagnose
  isotrope report runs/* -o comparison.html --pictures comparison

The HTML file needs no network and no other file, so you can send it and open it anywhere. The file
includes the findings of `isotrope diagnose`.
"""


class ReportSettings(Settings):
    """Settings of ``isotrope report``."""

    runs: list[Path] = setting(
        ..., "Run folder, or folder with a metrics.csv.", "RUN", positional=True
    )
    output: Path = setting(Path("report.html"), "File to write.", short="-o")
    pictures: Path | None = setting(
        None, "Folder to which every picture is also written, as SVG and as PNG.", "DIR"
    )
    diagnose: bool = setting(
        False, "First diagnose the runs whose diagnosis is missing or older than their log."
    )
    plugin: list[Path] = setting(
        [],
        "Python file that defines the objective of a run, for --diagnose. A plugin named in the "
        "settings of a run is not executed unless you give it here, for safety.",
        used=Used(lambda diagnose: diagnose, "needs `--diagnose`", note=True),
    )


def report(settings: ReportSettings) -> int:
    """Write the report, and print its path."""
    for folder in settings.runs:
        if not folder.is_dir():
            raise InputError(
                f"{place(folder)} is not a folder; give the `--output` folder of `isotrope train`"
            )
    files = map(RunFolder, settings.runs)
    empty = [f.path for f in files if f.config.is_file() and not f.is_run and f.recording() is None]
    runs = [folder for folder in settings.runs if folder not in empty]
    if not runs:  # the report raises an error that names the missing log
        runs, empty = settings.runs, []
    for folder in empty:
        print(f"left out: {place(folder)} has no metrics.csv yet", file=sys.stderr)
    if settings.diagnose:
        _diagnose(runs, settings.plugin)
    from isotrope.reports.html import write_report

    names = f"{len(runs)} runs" if len(runs) > 1 else str(runs[0])
    print(f"reading {names}, and drawing the pictures", file=sys.stderr)
    replaced = settings.output.exists()
    print(write_report(runs, settings.output, pictures=settings.pictures))
    if replaced:
        print("an older report was replaced; -o FILE writes to another file", file=sys.stderr)
    return 0


def _diagnose(runs: Sequence[Path], plugins: Sequence[Path]) -> None:
    """Diagnose the runs without a current diagnosis; print the verdicts on stderr."""
    from isotrope.diagnostics.target import diagnose

    for folder in runs:
        files = RunFolder(folder)
        written = files.diagnosis.stat().st_mtime if files.diagnosis.exists() else 0.0
        if files.is_run and written < files.metrics.stat().st_mtime:
            diagnosed = diagnose(folder, plugins=plugins, progress=True)
            print(f"{folder}:\n{diagnosed}", file=sys.stderr)


run = Command(
    "report", ReportSettings, report, "Compare runs in one self-contained HTML file.", EPILOG
)
