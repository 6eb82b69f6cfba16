"""Writes self-contained HTML files: the report that compares runs, and the page of an audit."""

import base64
import hashlib
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace, check_outputs
from isotrope.core.legible import counted, digits_of, legible, number, parameters, plain
from isotrope.core.progress import format_duration
from isotrope.core.run_folder import RECORDING, RunFolder
from isotrope.core.table import TitledTable
from isotrope.diagnostics.audit.result import Audit
from isotrope.diagnostics.findings import Diagnosis
from isotrope.reports import comparison, run_summary
from isotrope.reports.comparison import ComparisonCell
from isotrope.reports.panels import ReportPanel, sections
from isotrope.reports.pictures import write_pictures
from isotrope.reports.plots import SECOND, Style, styles
from isotrope.reports.quantities import explained
from isotrope.reports.runs import Run, diagnose_command, read_diagnosis, read_runs
from isotrope.reports.stored_scores import on_tests, stored_tables


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
    inputs = [file for run in runs for file in vars(RunFolder(run)).values() if file.is_file()]
    check_outputs(output.parent, [output.name], inputs)
    if pictures is not None and Path(pictures).resolve() == output.resolve():
        raise InputError(f"give another folder for the pictures: {output} is the file of the page")
    named = _named_apart([run for folder in runs for run in read_runs(Path(folder))])
    page = _page(named, title, tables)
    with atomic_replace(output) as temporary:
        # a folder's name may not be valid UTF-8
        temporary.write_text(page, encoding="utf-8", errors="replace")
        if pictures is not None:  # in this block, so that page and pictures are written, or neither
            write_pictures(named, pictures)
    return output


def audit_page(audited: Audit) -> str:
    """Return the page of an audit."""
    return tables_page("Before training", audited.title, audited.tables())


def tables_page(title: str, lead: str, tables: Sequence[TitledTable]) -> str:
    """Return a page that has only tables, in the style of a report."""
    template = _environment().get_template("tables.html")
    with_cells = [(table, _table_cells(table)) for table in tables]
    return template.render(title=title, lead=lead, tables=with_cells, sheet=source("sheet.css"))


def _environment() -> Environment:
    """Return the environment of the templates: it escapes values and refuses unknown names."""
    return Environment(
        loader=PackageLoader("isotrope.reports", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _named_apart(runs: Sequence[Run]) -> list[Run]:
    """Make equal names of runs differ: put the names of parent folders before them."""
    places = [(run.folder.resolve(), run.foreign) for run in runs]
    # the Doctor's folder is in the folder that names the run
    parts = [x.parts[: -1 if foreign and x.name == RECORDING else None] for x, foreign in places]
    named = []
    for run, own in zip(runs, parts, strict=True):
        depth = 1
        while depth < len(own) and sum(own[-depth:] == others[-depth:] for others in {*parts}) > 1:
            depth += 1
        folder = legible("/".join(own[-depth:]))
        name = folder + (run.name.removeprefix(run.whole) if run.whole else "")
        named.append(replace(run, name=name, whole=run.whole and folder))
    return named


@dataclass(frozen=True)
class _RunBlock:
    """The texts and the diagnosis that the page shows of one run, under the name ``run.name``.

    A folder has one diagnosis, at its first run. Only a run without siblings has a pill.
    """

    run: Run
    style: Style
    verdict: str
    pill: comparison.Pill | None
    diagnosis: Diagnosis | None
    differs: str
    origin: list[tuple[str, str]]
    changes: list[str]


def _blocks(runs: Sequence[Run]) -> list[_RunBlock]:
    blocks, settings = [], comparison.differing(runs)
    for run, style, differs in zip(runs, styles(len(runs)), settings, strict=True):
        diagnosis = read_diagnosis(run.folder) if run.first else None
        label = None if diagnosis is None or run.whole else comparison.pill(diagnosis, run.outcome)
        tested = on_tests(run) if len(runs) > 1 else ""  # of one run, it is the headline
        found = (tested, run_summary.verdict(run), comparison.twins(run, runs))
        sentences = " ".join(filter(None, found))
        origin, changed = _origin(run), run_summary.changes(run)
        blocks.append(_RunBlock(run, style, sentences, label, diagnosis, differs, origin, changed))
    return blocks


def _page(runs: Sequence[Run], title: str, tables: Sequence[TitledTable]) -> str:
    blocks, drawn = _blocks(runs), sections(runs)
    panels = [panel for section in drawn for panel in section.panels]
    script = source("hover.js")
    # a diagnosis is shown under the name of its folder
    firsts = [block for block in blocks if block.run.first]
    folders = [replace(b, run=replace(b.run, name=b.run.whole or b.run.name)) for b in firsts]
    worse = {block.run.name for block in folders if block.run.outcome == "worse"}
    health = comparison.summary([(block.run.name, block.diagnosis) for block in folders], worse)
    faulty = [b for b in folders if b.diagnosis is not None and not b.diagnosis.healthy]
    healthy = [b for b in folders if b.diagnosis is not None and b.diagnosis.healthy]
    best = comparison.headline(runs)
    template = _environment().get_template("template.html")
    return template.render(
        title=title,
        headlines=[health, best] if faulty else [best, health],
        runs=blocks,
        faulty=faulty,
        healthy=healthy,
        undiagnosed=[block.run for block in folders if block.diagnosis is None],
        command=diagnose_command,
        columns=comparison.columns(runs),
        comparison=comparison.cells(runs),
        tables=[(table, _table_cells(table)) for table in (*stored_tables(runs), *tables)],
        sections=drawn,
        second=SECOND,
        markup=Markup,
        glossary=explained({panel.key for panel in panels}),
        data=_script_data(runs, panels),
        script=script,
        allowed=_permission(script),
        sheet=source("sheet.css"),
        parameters=parameters,
    )


def _origin(run: Run) -> list[tuple[str, str]]:
    """Return the names and values needed to repeat a run."""
    origin = run.result.provenance if run.result else {}
    facts: list[tuple[str, str]] = []
    words = origin.get("command")
    if isinstance(words, (list, tuple)) and words:
        facts.append(("Command", shlex.join(str(word) for word in words)))
    if done := _done(run):
        facts.append(("Done", done))
    for label, key in (("Seed", "seed"), ("Data", "data"), ("Time", "time")):
        if origin.get(key) is not None:
            facts.append((label, str(origin[key])))
    facts += _data_facts(run)
    if isinstance(versions := origin.get("versions"), Mapping):
        facts.append(("Versions", parameters(versions)))
    machine = [str(origin[key]) for key in ("python", "platform") if origin.get(key)]
    if machine:
        facts.append(("Machine", f"Python {', '.join(machine)}, {origin.get('cores')} cores"))
    if isinstance(git := origin.get("git"), Mapping):
        state = " with changes" if git.get("modified") else ""
        facts.append(("Working folder", f"commit {str(git.get('commit'))[:12]}{state}"))
    settings = yaml.safe_dump(dict(run.settings), sort_keys=False, allow_unicode=True)
    return [*facts, ("Settings", settings.strip())]


def _data_facts(run: Run) -> list[tuple[str, str]]:
    data = run.result.details.get("data") if run.result else None
    if not isinstance(data, Mapping):
        return []
    described = {
        key.replace("_", " "): value for key, value in data.items() if not key.startswith("holdout")
    }
    facts = [("Images" if run.of_images else "Text", parameters(described))]
    held_out, shared = data.get("holdout"), data.get("holdout_trained_on")
    if held_out:
        also = f"; training records share a text with {plain(shared)} of them" if shared else ""
        facts.append(("Held out", f"{plain(held_out)} records{also}"))
    elif shared:  # the dev set is a file of the user
        facts.append(("Dev set", f"the training data contain {plain(shared)} of its texts"))
    return facts


def _done(run: Run) -> str:
    """Return the steps, epochs and durations of a finished run."""
    steps, seconds, wall = (run.metric(name) for name in ("steps", "seconds", "wall_seconds"))
    if steps is None or seconds is None:
        return ""
    epochs = run.series.get("epoch", np.full_like(run.steps, np.nan))
    logged = (run.steps > 0) & (epochs > 0)
    rates = epochs[logged] / run.steps[logged]  # epochs of one step
    passes = f" (epochs: {rates[-1] * steps:.2g})" if len(rates) else ""
    whole = "" if wall is None else f"; {format_duration(wall)} with evaluation and saving"
    return f"{counted(int(steps), 'step')}{passes} in {format_duration(seconds)}{whole}"


def _table_cells(table: TitledTable) -> list[list[ComparisonCell]]:
    """Return the cells of a table: texts, and numbers with the decimals of their column."""
    numbers = [
        [value for value in column if isinstance(value, (int, float)) and math.isfinite(value)]
        for column in zip(*table.rows, strict=True)
    ]
    digits = [digits_of(column) for column in numbers]
    rows = []
    for values in table.rows:
        row = []
        for value, measured, decimals in zip(values, numbers, digits, strict=True):
            if isinstance(value, str):
                cell = ComparisonCell(value, number=False)
            elif value is None or not math.isfinite(value):
                cell = ComparisonCell("\N{EN DASH}", "not measured", number=bool(measured))
            else:
                cell = ComparisonCell(number(value, decimals))
            row.append(cell)
        rows.append(row)
    return rows


def _script_data(runs: Sequence[Run], panels: Sequence[ReportPanel]) -> dict[str, object]:
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
    scales = {key: asdict(scale) for panel in panels for key, scale in panel.scales.items()}
    return {"runs": records, "scales": scales}


def _short(values: NDArray[np.float64]) -> list[float | None]:
    """Return six significant digits of each value; None if it was not measured."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def source(name: str) -> Markup:
    """Return the text of a file in this folder, for the page."""
    text = files("isotrope.reports").joinpath(name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - our own file, without text from users


def _permission(script: str) -> Markup:
    """Return the entry of a content security policy that allows this script and no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")  # noqa: S704 - letters, digits, +, / and =
