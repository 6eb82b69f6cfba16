"""Rows: renders a table or figure that artifacts.toml describes, from the results that there are.

The head of that file says what its words mean. What a row names is found by its paper's function
(``trainings`` of ``[papers]``), so that a row has no jobs of its own: they are the trainings that
its cells, claims and charts read.
"""

import functools
import importlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from isotrope.core import MissingExtra
from isotrope.reports import Picture
from papers.machinery import logged
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet, no_jobs
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import (
    RULE,
    Answer,
    Ruling,
    Spread,
    ahead,
    all_of,
    minus,
    negated,
    spread,
)
from papers.paper_numbers import printed
from papers.plots.charts import Chart, Series, charts

Names = Mapping[str, Any]
Find = Callable[[Scale, str], list[PaperJob]]

_SCALES = {"smoke", "cpu", "paper"}
_NAME = re.compile(r"\{(\w+)\}")
_MEASURE = re.compile(r"<([^<>|]+)(?:\|([^<>]*))?>")
_READ = re.compile(r"(at \S+|\w+) (.+?) of (.+)")
_COMPARED = re.compile(r"(not )?(mean )?(.+?) (>|<|=) (.+)")


def described(row: Names, paper: Names) -> Artifact:
    """Return what a row of artifacts.toml describes; the names of its paper are its own too."""
    about = {name: row[name] for name in ("title", "paper", "name")}
    row = {**row, "let": {**paper.get("let", {}), **row.get("let", {})}}
    find = functools.partial(_named, paper.get("trainings", ""))
    if "by" not in row:
        return Artifact(
            **about,
            jobs=lambda scale: Row(row, scale, Results(), find).jobs(),
            render=lambda scale, results: Row(row, scale, results, find).rendered(),
        )

    def render(scale: Scale, results: Results) -> Rendered:
        made: Rendered = function(row["by"])(scale, results)
        return replace(made, notes=[*made.notes, *Row(row, scale, results, find).notes()])

    jobs = functools.partial(_called, row["jobs"]) if "jobs" in row else no_jobs
    return Artifact(**about, jobs=jobs, render=render)


def _named(place: str, scale: Scale, name: str) -> list[PaperJob]:
    return list(function(place)(scale, name))


def _called(place: str, scale: Scale) -> list[PaperJob]:
    return list(function(place)(scale))


def function(place: str) -> Callable[..., Any]:
    """Return the function of ``module:name``.

    Raises:
        MissingExtra: what it needs is not installed.
    """
    module, _, name = place.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(("isotrope", "papers")):
            raise
        raise MissingExtra(error.name, extra="all") from error
    return found


@dataclass(frozen=True)
class Row:
    """A row at a scale; ``asked`` collects the jobs of all trainings that it reads."""

    row: Names
    scale: Scale
    results: Results
    find: Find
    asked: dict[PaperJob, None] = field(default_factory=dict)

    @functools.cached_property
    def names(self) -> Names:
        """What ``let`` of the paper and of the row say at this scale."""
        return {name: self._at(value) for name, value in self.row.get("let", {}).items()}

    def jobs(self) -> list[PaperJob]:
        """Return the jobs of everything that is read."""
        self.rendered()
        for picture in self.row.get("picture", ()):
            for names in self._loop(picture.get("each", {}), self.names):
                list(self._charts(picture, names))
        return list(self.asked)

    def rendered(self) -> Rendered:
        """Return tables, verdicts, pictures and notes."""
        tables = [
            self._sheet(table, names)
            for table in self.row.get("table", ())
            for names in self._loop(table.get("each", {}), self.names)
        ]
        verdicts = [
            verdict
            for claim in self.row.get("claim", ())
            for verdict in self._verdicts(claim, self.names)
        ]
        pictures = {
            self._fill(picture.get("name", self.row["name"]), names): functools.partial(
                self._drawn, picture, names
            )
            for picture in self.row.get("picture", ())
            for names in self._loop(picture.get("each", {}), self.names)
        }
        more = Rendered()
        if "more" in self.row:
            more = function(self.row["more"])(self.scale, self.results)
        notes = [*self.notes(), *more.notes]
        return Rendered([*tables, *more.tables], verdicts, pictures, notes)

    def notes(self) -> Iterator[str]:
        """Yield the notes of this scale."""
        for note in self.row.get("notes", ()):
            text = self._at(note)
            if isinstance(text, Mapping):
                jobs = [
                    job for name in text["of"] for job in self._jobs(self._fill(name, self.names))
                ]
                yield from function(text["from"])(self.scale, jobs)
            elif text:
                yield self._fill(text, self.names).replace("RULE", RULE)

    def _at(self, value: Any) -> Any:  # noqa: ANN401 - of the TOML
        by_scale = isinstance(value, Mapping) and value and set(value) <= _SCALES
        return value.get(self.scale) if by_scale else value

    # names

    def _loop(self, over: Names, names: Names) -> Iterator[Names]:
        """Yield the names of every combination; an element that is a table brings its keys."""
        if not over:
            yield names
            return
        (name, source), *rest = over.items()
        for element in _elements(source, names):
            own = element if isinstance(element, Mapping) else {name: element}
            yield from self._loop(dict(rest), {**names, **own})

    def _fill(self, text: str, names: Names) -> str:
        """Return a text with its names replaced, and those in what replaces them."""
        while _NAME.search(text):
            text = _NAME.sub(lambda found: self._text(names[found[1]], names), text)
        return text

    def _text(self, value: Any, names: Names) -> str:  # noqa: ANN401 - of the TOML
        if isinstance(value, Mapping):
            parts = [self._fill(value["all"], of) for of in self._loop(value["over"], names)]
            return str(value.get("join", ", ")).join(parts)
        return str(value)

    # numbers

    def _jobs(self, name: str) -> list[PaperJob]:
        jobs = self.find(self.scale, name)
        self.asked.update(dict.fromkeys(jobs))
        return jobs

    def _spread(self, text: str) -> Spread | None:
        """Return ``knn last of SimCLR``, perhaps less another, over the seeds that have it."""
        first, _, second = text.partition(" minus ")
        if not second:
            return self._read(first)
        levels = [self._read(part) for part in second.removeprefix("best of ").split("; ")]
        level = self._read(first)
        if level is None or None in levels:
            return None
        most = max((one for one in levels if one), key=lambda one: one.mean)
        return minus(level.by_seed, most.by_seed)

    def _read(self, text: str) -> Spread | None:
        found = _READ.fullmatch(text)
        assert found, f"artifacts.toml: {text!r} names no number"
        how, metric, training = found.groups()
        jobs = self._jobs(training)
        if how == "metric":
            return self.results.spread(jobs, metric)
        return logged.over_seeds(self.results, jobs, how, metric)

    def _printed(self, path: str) -> float | str:
        table, _, rest = path.partition("/")
        numbers, parts = printed(self.row["paper"], table), rest.split("/")
        for place in range(1, len(parts)):  # names of rows and of columns have slashes too
            row, column = "/".join(parts[:place]), "/".join(parts[place:])
            if row in numbers.rows and column in numbers.columns:
                value = numbers.rows[row][numbers.columns.index(column)]
                return "-" if value is None else value
        raise KeyError(f"artifacts.toml: nothing is printed at {path}")

    def _shown(self, text: str, form: str) -> str | None:
        if text.startswith("printed "):
            return format(self._printed(text.removeprefix("printed ")), form)
        level = self._spread(text)
        if level is None:
            return None
        if form.startswith("%"):
            shares = None if level.deviation is None else 100 * level.deviation
            return Spread(100 * level.mean, shares, level.count).text(int(form[1:]))
        if form.endswith("mean"):
            return f"{level.mean:{form.removesuffix('mean')}}"
        shown = level.text(int(form.lstrip("+") or 2))
        return f"+{shown}" if form.startswith("+") and not shown.startswith("-") else shown

    def _cell(self, text: str, names: Names) -> str | None:
        """Return a cell; None where a number in it was not measured."""
        filled = self._fill(text, names)
        shown = [self._shown(found[1], found[2] or "") for found in _MEASURE.finditer(filled)]
        if None in shown:
            return None
        numbers = iter(shown)
        return _MEASURE.sub(lambda _: next(numbers) or "", filled)

    def _evidence(self, claim: Names, names: Names) -> str:
        """Return the numbers of a claim, a dash for what is missing; nothing if all is."""
        filled = self._fill(self._text(claim.get("evidence", ""), names), names)
        shown = [self._shown(found[1], found[2] or "") for found in _MEASURE.finditer(filled)]
        if shown and not any(shown):
            return ""
        numbers = iter(shown)
        return _MEASURE.sub(lambda _: next(numbers) or "-", filled)

    # tables, claims, pictures

    def _sheet(self, table: Names, names: Names) -> Sheet:
        columns = [
            (column["head"], column["cell"], column.get("over", {})) for column in table["columns"]
        ]
        header = [
            self._fill(head, inner)
            for head, _, over in columns
            for inner in self._loop(over, names)
        ]
        rows = [
            [
                self._cell(cell, inner)
                for _, cell, over in columns
                for inner in self._loop(over, row)
            ]
            for row in self._loop(table.get("over", {}), names)
        ]
        if "last" in table:
            rows.append([self._cell(cell, names) for cell in table["last"]])
        return Sheet(header, rows, self._fill(table.get("title", ""), names))

    def _verdicts(self, claim: Names, outer: Names) -> Iterator[Ruling]:
        for names in self._loop(claim.get("each", {}), outer):
            for part in claim.get("claim", ()):
                yield from self._verdicts(part, names)
            if "by" in claim:
                yield function(claim["by"])(self.scale, self.results)
            if "says" not in claim:
                continue
            answers = [
                self._answer(self._fill(one["is"], inner))
                for part in claim["holds"]
                for one in [part if isinstance(part, Mapping) else {"is": part, "over": {}}]
                for inner in self._loop(one["over"], names)
            ]
            says = self._fill(claim["says"], names)
            yield Ruling(says, all_of(answers), self._evidence(claim, names))

    def _answer(self, text: str) -> Answer:
        """Return whether a comparison holds, by the intervals of differences over seeds."""
        sides: list[Spread | None] = []

        def put(found: re.Match[str]) -> str:
            if found[1].startswith("printed "):
                return str(self._printed(found[1].removeprefix("printed ")))
            sides.append(self._spread(found[1]))
            return f"${len(sides) - 1}"

        found = _COMPARED.fullmatch(_MEASURE.sub(put, text))
        assert found, f"artifacts.toml: {text!r} compares nothing"
        no, mean, left, sign, right = found.groups()
        a, b = (_side(side, sides) for side in (left, right))
        if mean:
            if not isinstance(a, Spread) or not isinstance(b, float):
                return None
            answer: Answer = {"<": a.mean < b, ">": a.mean > b, "=": a.mean == b}[sign]
            return negated(answer) if no else answer
        assert sign != "=", f"artifacts.toml: {text!r}: no interval decides that two are equal"
        if isinstance(a, float):
            return None
        answer = ahead(a, b)
        return negated(answer) if bool(no) != (sign == "<") else answer

    def _drawn(self, picture: Names, names: Names) -> Picture:
        if "by" in picture:
            made: Picture = function(picture["by"])(self.scale, self.results)
            return made
        return charts(list(self._charts(picture, names)))

    def _charts(self, picture: Names, names: Names) -> Iterator[Chart]:
        for chart in picture.get("chart", ()):
            for inner in self._loop(chart.get("each", {}), names):
                series = [
                    self._series(one, own)
                    for one in chart["series"]
                    for own in self._loop(one.get("each", {}), inner)
                ]
                kind: Literal["lines", "bars"] = chart.get("kind", "lines")
                logs = [axis in self._fill(chart.get("log", ""), inner) for axis in "xy"]
                texts = [self._fill(chart.get(name, ""), inner) for name in ("title", "x", "y")]
                title, x, y = texts
                yield Chart(title, series, x, y, kind, log_x=logs[0], log_y=logs[1])

    def _series(self, series: Names, names: Names) -> Series:
        title = self._fill(series.get("title", ""), names)
        for how in ("epochs", "steps"):
            if how in series:
                metric, _, training = self._fill(series[how], names).partition(" of ")
                course = logged.epochs if how == "epochs" else logged.steps
                return Series(title, *course(self.results, self._jobs(training), metric))
        x, y, deviations = [], [], []
        for inner in self._loop(series["over"], names):
            where = self._fill(series["x"], inner)
            text = self._fill(series["at"], inner)
            if text.startswith("printed "):
                level = spread([float(self._printed(text.removeprefix("printed ")))])
            else:
                level = self._spread(text)
            x.append(where)
            y.append(None if level is None else level.mean)
            deviations.append(None if level is None else level.deviation)
        if series.get("numbers"):
            return Series(title, [float(place) for place in x], y, deviations)
        return Series(title, x, y, deviations)


def _elements(source: str | Sequence[Any], names: Names) -> Sequence[Any]:
    """Return a list, or one of the names: the first of it, its neighbours, or all its pairs."""
    if not isinstance(source, str):
        return source
    how, _, name = source.rpartition(" ")
    elements: Sequence[Any] = names[name]
    if how == "first":
        return elements[:1]
    if how in ("neighbours", "pairs"):
        near, every = itertools.pairwise(elements), itertools.permutations(elements, 2)
        pairs = near if how == "neighbours" else every
        return [{"one": one, "other": other} for one, other in pairs]
    return elements


def _side(text: str, measured: Sequence[Spread | None]) -> Spread | float | None:
    """Return a side of a comparison: a number, ``$0``, ``$0 / 3``, or ``best($0, $1)``."""
    if text.startswith("best("):
        there = [level for place in re.findall(r"\d+", text) if (level := measured[int(place)])]
        return max(there, key=lambda level: level.mean, default=None)
    if not text.startswith("$"):
        return float(text)
    place, _, divisor = text[1:].partition(" / ")
    level = measured[int(place)]
    if level is None or not divisor:
        return level
    return spread({seed: value / float(divisor) for seed, value in level.by_seed.items()})
