"""The report: one HTML file that compares runs, complete in itself, without scripts or network."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from isotrope.core.errors import InputError
from isotrope.core.files import replacing
from isotrope.report.plots import INK, panels, styles
from isotrope.report.runs import Run, read_run

__all__ = ["Example", "Table", "write_report"]

_COLUMNS = (
    ("dev_start", "Dev start", "score of the model before training (step 0)"),
    ("dev_best", "Dev best", "highest score of the run, step 0 included"),
    ("dev_best_step", "At step", "where the best score was measured"),
    ("dev_final", "Dev final", "score after the last step"),
    ("alignment", "Align\u00adment", "mean squared distance of the two views; lower is closer"),
    ("uniformity", "Unifor\u00admity", "log mean exp(-2 d\u00b2); lower is more spread out"),
    ("dissipation", "GD", "mean gradient dissipation"),
    ("hardest_share", "Hardest share", "share of the weight W on the hardest negative"),
    ("ratio", "Ratio", "pull towards the positive per push from the negatives"),
    ("sentences_per_second", "Sent. /\u202fs", "sentences per second of training"),
    ("seconds", "Sec\u00adonds", "duration of training"),
)

_FIXED_DIGITS = {"dev_best_step": 0, "sentences_per_second": 0, "seconds": 1}

_GLOSSARY = (
    ("Dev score", "", "The score on held-out data during training; step 0 is the untrained model, "
     "and the step with the highest score is the model that was saved."),
    ("Gradient dissipation", "GD", "The factor, averaged over anchors, that scales an anchor's "
     "whole gradient: near 0 the anchor already tells its positive from its negatives, and teaches "
     "no more."),
    ("Weight", "W", "How the push is shared among an anchor's negatives; its share on the hardest "
     "negative is 1 if that one alone is pushed away, 1/(N \u2212 1) if all N \u2212 1 are alike."),
    ("Ratio", "R", "How strongly an anchor is pulled to its positive for each unit of push from "
     "its negatives; above 1 the pull dominates."),
    ("Alignment", "", "Mean squared distance between the two views of one text on the unit sphere: "
     "0 if they coincide, 2 if they are unrelated; lower is closer."),
    ("Uniformity", "", "Logarithm of the mean of exp(\u22122 d\u00b2) over pairs of texts: "
     "0 if all texts share one point, about \u22124 if they spread evenly; lower is wider."),
    ("Embedding norm", "", "Mean length of embeddings before they are normalised; gradients shrink "
     "in proportion to it, so a growing norm slows training down."),
    ("Gradient norm", "", "Length of the gradient of all parameters at a step; spikes are what "
     "gradient clipping is for."),
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """An extra table of a report. None is shown as a dash; numbers of a column get equal digits."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | float | None]]
    note: str = ""


@dataclass(frozen=True)
class Example:
    """One search before and after training: the query, the found texts in order, the right one."""

    query: str
    before: Sequence[str]
    after: Sequence[str]
    answer: str | None = None


@dataclass(frozen=True)
class _Cell:
    text: str
    title: str = ""
    number: bool = True
    gain: str = ""
    best: bool = False


def write_report(
    runs: Sequence[Path],
    output: Path,
    *,
    title: str = "Training report",
    tables: Sequence[Table] = (),
    examples: Sequence[Example] = (),
) -> Path:
    """Compare run folders in one self-contained HTML file.

    Args:
        runs: output folders of ``isotrope train``, finished or in progress.
        output: the HTML file to write; replaced as a whole.
        title: the page's title.
        tables: further tables, shown after the comparison.
        examples: searches before and after training.

    Returns:
        ``output``.

    Raises:
        InputError: no run was given, one of them is damaged, or the file cannot be written.
    """
    if not runs:
        raise InputError("a report needs at least one run; give the --output folder of a training")
    output = Path(output)
    if output.is_dir():
        raise InputError(f"{output} is a folder; give the name of an HTML file to write")
    page = _page(_named([read_run(Path(run)) for run in runs]), title, tables, examples)
    with replacing(output) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return output


def _page(
    runs: Sequence[Run], title: str, tables: Sequence[Table], examples: Sequence[Example]
) -> str:
    environment = Environment(
        loader=PackageLoader("isotrope.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html").render(
        title=title,
        headline=_headline(runs),
        runs=[
            {"run": run, "style": style, "verdict": _verdict(run), "origin": _origin(run)}
            for run, style in zip(runs, styles(len(runs)), strict=True)
        ],
        columns=_COLUMNS,
        comparison=_comparison(runs),
        tables=[(table, _cells(table)) for table in tables],
        panels=[
            {"panel": panel, "svg": _ink(panel.svg), "wide": _ink(panel.wide)}
            for panel in panels(runs)
        ],
        examples=examples,
        glossary=_GLOSSARY,
        data=_data(runs),
        parameters=_parameters,
    )


def _named(runs: Sequence[Run]) -> list[Run]:
    """Give runs whose folders have one name the names of their parents too."""
    names = [run.name for run in runs]
    return [
        run
        if names.count(run.name) == 1
        else Run(
            f"{run.folder.resolve().parent.name}/{run.name}",
            run.folder,
            run.settings,
            run.steps,
            run.series,
            run.result,
        )
        for run in runs
    ]


def _ink(svg: str) -> Markup:
    """Let a picture take the text colour of the page, in its light and its dark form."""
    return Markup(svg.replace(INK, "currentColor"))  # noqa: S704 - made by plots, names escaped


def _data(runs: Sequence[Run]) -> Markup:
    """Return everything shown as JSON that cannot end the script element it stands in."""
    records = [
        {
            "name": run.name,
            "objective": run.objective,
            "parameters": run.parameters,
            "settings": run.settings,
            "steps": _short(run.steps),
            "series": {name: _short(values) for name, values in run.series.items()},
            "metrics": run.result.metrics if run.result else None,
            "details": run.result.details if run.result else None,
            "provenance": run.result.provenance if run.result else None,
        }
        for run in runs
    ]
    text = json.dumps(records, ensure_ascii=False, separators=(",", ":"), default=str)
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Markup(safe)  # noqa: S704 - JSON without any "<"


def _short(values: np.ndarray[Any, Any]) -> list[float | None]:
    """Return six significant digits of each value, None where nothing was measured."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def _digits(values: Sequence[float]) -> int:
    """Return how many decimals a column of numbers needs."""
    largest = max((abs(value) for value in values), default=0.0)
    if all(isinstance(value, int) for value in values) or largest >= 1000:
        return 0
    return 2 if largest >= 10 else 3 if largest >= 0.01 else 5


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _signed(value: float, digits: int) -> str:
    return f"{'+' if value >= 0 else ''}{_number(value, digits)}"


def _parameters(parameters: Mapping[str, Any]) -> str:
    """Return ``temperature 0.05, dissipation margin:0.3``."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in parameters.items()
    )


def _dev_digits(runs: Sequence[Run]) -> int:
    """Return the decimals of dev scores: percentages get two, fractions four."""
    scores = [value for run in runs if (value := run.metric("dev_best")) is not None]
    return 2 if max((abs(score) for score in scores), default=0.0) > 1 else 4


def _headline(runs: Sequence[Run]) -> str:
    """Return the one sentence that answers which run to use."""
    scored = [(best, run) for run in runs if (best := run.metric("dev_best")) is not None]
    if not scored:
        return "No dev score was measured, so no run can be called the best."
    if len({run.dev_data for _, run in scored if run.finished}) > 1:
        return "The runs were scored on different dev data, so their scores cannot be compared."
    best, run = max(scored, key=lambda pair: pair[0])
    start, step, digits = run.metric("dev_start"), run.metric("dev_best_step"), _dev_digits(runs)
    if not step:
        final = run.metric("dev_final")
        lead = "Training made it worse" if final is not None and final < best else "No gain"
        return f"{lead}: the best model is the one before training, step 0."
    where = f"{run.dev_name or 'dev score'} {_number(best, digits)} at step {step:,.0f}"
    gain = (
        f", {_signed(best - start, digits)} over the model before training"
        if start is not None
        else ""
    )
    lead = f"{run.name} reached " if len(runs) == 1 else f"{run.name} is best: "
    return f"{lead}{where}{gain}."


def _verdict(run: Run) -> str:
    """Return one sentence on a run: its own, or what can be said while it is in progress."""
    own = run.result.details.get("verdict") if run.result else None
    if own:
        return _sentence(str(own))
    best, step = run.metric("dev_best"), run.metric("dev_best_step")
    start, digits = run.metric("dev_start"), _dev_digits([run])
    lead = (
        ""
        if run.finished
        else f"In progress (or stopped) at step {run.steps.max(initial=0.0):,.0f}: "
    )
    if best is None:
        text = "no dev score was measured."
    elif not step:
        text = f"no step has beaten step 0 ({_number(best, digits)})."
    else:
        gain = f" ({_signed(best - start, digits)})" if start is not None else ""
        text = f"best dev score {_number(best, digits)}{gain} at step {step:,.0f}."
    return _sentence(lead + text)


def _sentence(text: str) -> str:
    """Return the text with a capital letter and a full stop."""
    text = text.strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


def _why_missing(run: Run, key: str) -> str:
    """Return why a run has no such number."""
    if not run.finished:
        return "not measured yet: the run has not written its result"
    if key.startswith("dev_"):
        return "not measured: the run had no --dev data"
    if key == "ratio":
        return "not defined: the pull of this objective is a matrix, or no negative had a weight"
    if key == "hardest_share":
        return "not defined: no anchor was active at the last measurement"
    return "not measured in this run"


def _comparison(runs: Sequence[Run]) -> list[list[_Cell]]:
    """Return the cells of the comparison, one row per run, without the run's own column."""
    rows: list[list[_Cell]] = [[] for _ in runs]
    bests = [run.metric("dev_best") for run in runs]
    top = max((best for best in bests if best is not None), default=math.nan)
    comparable = len(runs) > 1 and len({run.dev_data for run in runs if run.finished}) <= 1
    for key, _, _ in _COLUMNS:
        values = [run.metric(key) for run in runs]
        known = [value for value in values if value is not None]
        digits = _dev_digits(runs) if key.startswith("dev_") else _digits(known)
        digits = _FIXED_DIGITS.get(key, digits)
        for row, run, value in zip(rows, runs, values, strict=True):
            if value is None:
                row.append(_Cell("\N{EN DASH}", _why_missing(run, key)))
                continue
            start = run.metric("dev_start")
            gain = "" if key != "dev_best" or start is None else _signed(value - start, digits)
            best = key == "dev_best" and comparable and value == top
            row.append(_Cell(_number(value, digits), gain=gain, best=best))
    return rows


def _cells(table: Table) -> list[list[_Cell]]:
    """Return the cells of an extra table.

    Raises:
        ValueError: a row that is not as wide as the header.
    """
    for row in table.rows:
        if len(row) != len(table.columns):
            raise ValueError(
                f"table {table.title!r} has {len(table.columns)} columns; found a row of {len(row)}"
            )
    columns = list(zip(*table.rows, strict=True))
    numbers = [
        [v for v in column if isinstance(v, (int, float)) and math.isfinite(v)]
        for column in columns
    ]
    digits = [_digits(column) for column in numbers]
    return [
        [
            _Cell("\N{EN DASH}", "not measured", bool(numbers[i]))
            if value is None or (isinstance(value, float) and not math.isfinite(value))
            else _Cell(value, number=False)
            if isinstance(value, str)
            else _Cell(_number(value, digits[i]))
            for i, value in enumerate(row)
        ]
        for row in table.rows
    ]


def _origin(run: Run) -> list[tuple[str, str]]:
    """Return what somebody needs to repeat a run, as name and value."""
    origin = run.result.provenance if run.result else {}
    details = run.result.details if run.result else {}
    facts: list[tuple[str, str]] = []
    command = origin.get("command")
    if isinstance(command, (list, tuple)) and command:
        facts.append(("Command", shlex.join(str(part) for part in command)))
    for label, key in (("Seed", "seed"), ("Data", "data"), ("Time", "time")):
        if origin.get(key) is not None:
            facts.append((label, str(origin[key])))
    if isinstance(data := details.get("data"), Mapping):
        facts.append(("Text", _parameters({k.replace("_", " "): v for k, v in data.items()})))
    if isinstance(versions := origin.get("versions"), Mapping):
        facts.append(("Versions", _parameters(versions)))
    machine = [str(origin[key]) for key in ("python", "platform") if origin.get(key)]
    if machine:
        facts.append(("Machine", f"Python {', '.join(machine)}, {origin.get('cores')} cores"))
    if isinstance(git := origin.get("git"), Mapping):
        state = " with changes" if git.get("modified") else ""
        facts.append(("Working folder", f"commit {str(git.get('commit'))[:12]}{state}"))
    settings = yaml.safe_dump(dict(run.settings), sort_keys=False, allow_unicode=True)
    return [*facts, ("Settings", settings.strip())]
