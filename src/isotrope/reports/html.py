"""Writes self-contained HTML files: the report that compares runs, and the page of an audit."""

import base64
import hashlib
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace, check_outputs
from isotrope.core.legible import counted, legible
from isotrope.core.progress import format_duration
from isotrope.core.run_folder import RunFolder
from isotrope.core.table import TitledTable
from isotrope.diagnostics.audit.result import Audit
from isotrope.diagnostics.findings import Diagnosis, Evidence
from isotrope.reports.comparison import (
    ComparisonCell,
    cells,
    changes,
    columns,
    differing,
    digits_of,
    evaluated,
    headline,
    number,
    pill,
    summary,
    twins,
    verdict,
)
from isotrope.reports.panels import Scale, sections
from isotrope.reports.pictures import write_pictures
from isotrope.reports.plots import SECOND, styles
from isotrope.reports.quantities import explained
from isotrope.reports.runs import Run, diagnose_command, read_diagnosis, read_runs


def write_report(
    runs: Sequence[Path],
    output: Path,
    *,
    title: str = "Training report",
    tables: Sequence[TitledTable] = (),
    pictures: Path | None = None,
) -> Path:
    """Compare run folders in one self-contained HTML file.

    Args:
        runs: Output folders of trainings on text or images, finished or in progress.
        output: The HTML file to write. An existing file is replaced.
        title: The page's title.
        tables: Tables to show after the comparison of the runs.
        pictures: Folder to which every picture is also written, as SVG and as PNG.

    Returns:
        The path ``output``.
    """
    if not runs:
        raise InputError(
            "give the `--output` folder of a training: a report needs at least one run"
        )
    output = Path(output)
    read_files = [file for run in runs for file in vars(RunFolder(run)).values() if file.is_file()]
    check_outputs(output.parent, [output.name], read_files)
    if pictures is not None and Path(pictures).resolve() == output.resolve():
        raise InputError(f"give another folder for the pictures: {output} is the file of the page")
    read = _named([run for folder in runs for run in read_runs(Path(folder))])
    page = _page(read, title, tables)
    with atomic_replace(output) as temporary:
        # a folder's name may not be valid UTF-8
        temporary.write_text(page, encoding="utf-8", errors="replace")
        if pictures is not None:  # in this block, so that page and pictures are written, or neither
            write_pictures(read, pictures)
    return output


def tables_page(title: str, lead: str, tables: Sequence[TitledTable]) -> str:
    """Return a page that has only tables, in the style of a report."""
    template = _environment().get_template("tables.html")
    cells_of = [(table, _cells(table)) for table in tables]
    return template.render(title=title, lead=lead, tables=cells_of, sheet=source("sheet.css"))


def audit_page(audited: Audit) -> str:
    """Return the page of an audit."""
    return tables_page("Before training", audited.title, audited.tables())


def _environment() -> Environment:
    """Return the environment of the templates: it escapes values and refuses unknown names."""
    return Environment(
        loader=PackageLoader("isotrope.reports", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _blocks(runs: Sequence[Run], diagnoses: Sequence[Diagnosis | None]) -> list[dict[str, object]]:
    """Return for each run the values that the template shows in the run's block."""
    return [
        {
            "run": run,
            "style": style,
            "verdict": f"{verdict(run)} {twins(run, runs)}".strip(),
            "pill": None if diagnosis is None or run.whole else pill(diagnosis, run.outcome),
            "origin": _origin(run),
            "diagnosis": diagnosis,
            "differs": differs,
            "changes": changes(run),
        }
        for run, style, diagnosis, differs in zip(
            runs, styles(len(runs)), diagnoses, differing(runs), strict=True
        )
    ]


def _page(runs: Sequence[Run], title: str, tables: Sequence[TitledTable]) -> str:
    diagnoses = [read_diagnosis(run.folder) if run.first else None for run in runs]
    drawn = sections(runs)
    scales = {
        key: scale
        for _, panels, _ in drawn
        for panel in panels
        for key, scale in panel.scales.items()
    }
    pairs = [pair for pair in zip(runs, diagnoses, strict=True) if pair[0].first]
    together = [(replace(run, name=run.whole or run.name), of_run) for run, of_run in pairs]
    worse = {run.name for run, _ in together if run.outcome == "worse"}
    health = summary([(run.name, of_run) for run, of_run in together], worse)
    unhealthy = any(of_run is not None and not of_run.healthy for of_run in diagnoses)
    script = source("hover.js")
    blocks = _blocks(runs, diagnoses)
    firsts = [block for run, block in zip(runs, blocks, strict=True) if run.first]
    return (
        _environment()
        .get_template("template.html")
        .render(
            title=title,
            # faults come before the best run
            headlines=[health, headline(runs)] if unhealthy else [headline(runs), health],
            runs=blocks,
            findings=[
                ({**entry, "run": run}, finding, f"{n}. " if len(diagnosis.findings) > 1 else "")
                for (run, diagnosis), entry in zip(together, firsts, strict=True)
                if diagnosis is not None
                for n, finding in enumerate(diagnosis.findings, start=1)
            ],
            healthy=[
                (run.name, of_run.numbers)
                for run, of_run in together
                if of_run is not None and of_run.healthy
            ],
            undiagnosed=[run for run, of_run in together if of_run is None and not run.foreign],
            foreign=[run.name for run, of_run in together if of_run is None and run.foreign],
            command=diagnose_command,
            table_row=table_row,
            columns=columns(runs),
            comparison=cells(runs),
            tables=[(table, _cells(table)) for table in (*evaluated(runs), *tables)],
            sections=drawn,
            second=SECOND,
            markup=Markup,
            glossary=explained({panel.key for _, panels, _ in drawn for panel in panels}),
            data=data(runs, scales),
            script=script,
            allowed=permission(script),
            sheet=source("sheet.css"),
            parameters=_parameters,
        )
    )


def _named(runs: Sequence[Run]) -> list[Run]:
    """Make equal names of runs differ: put the names of parent folders before them."""
    parts = [run.folder.resolve().parts for run in runs]
    named = []
    for run, part in zip(runs, parts, strict=True):
        depth = 1
        while depth < len(part) and sum(part[-depth:] == others[-depth:] for others in parts) > 1:
            depth += 1
        named.append(
            replace(
                run,
                name=legible("/".join(part[-depth:])) if parts.count(part) == 1 else run.name,
            )
        )
    return named


def _parameters(parameters: Mapping[str, Any]) -> str:
    """Return parameters as text: ``temperature 0.05, dissipation margin:0.3``."""
    return ", ".join(f"{name} {_plain(value)}" for name, value in parameters.items())


def _plain(value: object) -> str:
    """Return a value as words: a list as its items, a mapping as its names and values."""
    if isinstance(value, Mapping):
        return _parameters(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cells(table: TitledTable) -> list[list[ComparisonCell]]:
    """Return the cells of a table."""
    numbers = [
        [v for v in column if isinstance(v, (int, float)) and math.isfinite(v)]
        for column in zip(*table.rows, strict=True)
    ]
    digits = [digits_of(column) for column in numbers]
    return [
        [
            ComparisonCell("\N{EN DASH}", "not measured", bool(numbers[i]))
            if value is None or (isinstance(value, float) and not math.isfinite(value))
            else ComparisonCell(value, number=False)
            if isinstance(value, str)
            else ComparisonCell(number(value, digits[i]))
            for i, value in enumerate(row)
        ]
        for row in table.rows
    ]


def _origin(run: Run) -> list[tuple[str, str]]:
    """Return the names and values needed to repeat a run."""
    origin = run.result.provenance if run.result else {}
    details = run.result.details if run.result else {}
    facts: list[tuple[str, str]] = []
    command = origin.get("command")
    if isinstance(command, (list, tuple)) and command:
        facts.append(("Command", shlex.join(str(part) for part in command)))
    if done := _done(run):
        facts.append(("Done", done))
    for label, key in (("Seed", "seed"), ("Data", "data"), ("Time", "time")):
        if origin.get(key) is not None:
            facts.append((label, str(origin[key])))
    if isinstance(data := details.get("data"), Mapping):
        rest = {key: value for key, value in data.items() if not key.startswith("holdout")}
        words = _parameters({key.replace("_", " "): value for key, value in rest.items()})
        facts.append(("Images" if run.of_images else "Text", words))
        held, both = data.get("holdout"), data.get("holdout_trained_on")
        if both and not held:  # of a file of the user
            facts.append(("Dev set", f"{_plain(both)} of its texts are in the training data"))
        if held:
            shared = f"; {_plain(both)} of them share a text with a training record" if both else ""
            facts.append(("Held out", f"{_plain(held)} records{shared}"))
    if isinstance(versions := origin.get("versions"), Mapping):
        facts.append(("Versions", _parameters(versions)))
    machine = [str(origin[key]) for key in ("python", "platform") if origin.get(key)]
    if machine:
        facts.append(("Machine", f"Python {', '.join(machine)}, {origin.get('cores')} cores"))
    if isinstance(git := origin.get("git"), Mapping):
        state = " with changes" if git.get("modified") else ""
        facts.append(("Working folder", f"commit {str(git.get('commit'))[:12]}{state}"))
    unused = {"epochs": run.settings.get("max-steps"), "holdout": not run.settings.get("holdout")}
    used = {name: value for name, value in run.settings.items() if not unused.get(name)}
    settings = yaml.safe_dump(used, sort_keys=False, allow_unicode=True)
    return [*facts, ("Settings", settings.strip())]


def _done(run: Run) -> str:
    """Return the steps, epochs and durations of a finished run."""
    steps, seconds, wall = (run.metric(name) for name in ("steps", "seconds", "wall_seconds"))
    if steps is None or seconds is None:
        return ""
    at, epochs = run.steps, run.series.get("epoch", np.full_like(run.steps, np.nan))
    rates = [epoch / step for step, epoch in zip(at, epochs, strict=True) if step and epoch > 0]
    passes = f" (epochs: {rates[-1] * steps:.2g})" if rates else ""
    whole = "" if wall is None else f"; {format_duration(wall)} with evaluation and saving"
    return f"{counted(int(steps), 'step')}{passes} in {format_duration(seconds)}{whole}"


def source(name: str) -> Markup:
    """Return the text of a file in this folder, for the page."""
    text = files("isotrope.reports").joinpath(name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - our own file, without text from users


def permission(script: str) -> Markup:
    """Return the entry of a content security policy that allows this script and no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")  # noqa: S704 - letters, digits, +, / and =


def data(runs: Sequence[Run], scales: Mapping[str, Scale]) -> dict[str, object]:
    """Return what the page's script reads: names, colours and series of runs, and the scales."""
    records = [
        {
            "name": run.name,
            "colour": style.colour,
            "steps": _short(run.steps),
            "series": {name: _short(values) for name, values in run.series.items()},
        }
        for run, style in zip(runs, styles(len(runs)), strict=True)
    ]
    return {"runs": records, "scales": {key: asdict(scale) for key, scale in scales.items()}}


def _short(values: NDArray[np.float64]) -> list[float | None]:
    """Return six significant digits of each value; None if it was not measured."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def table_row(evidence: Evidence) -> tuple[str, str, str]:
    """Return a number's name, value and limit as texts. A missing limit is an empty text."""
    unit = f" {evidence.unit}" if evidence.unit else ""
    limit, (times, sign) = evidence.threshold, (100, "%") if evidence.is_share else (1, "")
    against = "" if limit is None else f"{evidence.side} {_number(times * limit)}{sign}".strip()
    return evidence.words, f"{_number(times * evidence.number)}{sign}{unit}", against


def _number(value: float) -> str:
    """Return a number with four significant digits."""
    if not math.isfinite(value):
        return "not finite"
    without_decimals = value == round(value) or abs(value) >= 1000
    if without_decimals:
        return number(value, 0)
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}")
