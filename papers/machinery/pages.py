"""Pages: tables and verdicts are written as text, CSV and Markdown, pictures as SVG files."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isotrope.core.files import write_all
from isotrope.core.progress import format_duration
from isotrope.core.result import Result
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table

__all__ = [
    "MEANINGLESS",
    "as_csv",
    "as_json",
    "as_markdown",
    "as_text",
    "provenance_of",
    "reason",
    "summary",
    "with_notes",
    "write",
]

NOT_RUN = "not run"
MEANINGLESS = (
    "smoke scale: a few steps on documentation and digits show that everything runs; the numbers "
    "and the verdicts mean nothing"
)


def as_text(artifact: Artifact, rendered: Rendered) -> str:
    """Return tables, verdicts and notes for a terminal."""
    parts = [f"{artifact.paper}, {artifact.title}"]
    if MEANINGLESS in rendered.notes:
        parts[0] += " (smoke scale: numbers without meaning)"
    parts += [_aligned(table) for table in rendered.tables]
    parts += [
        f"{v.word:<10}{v.claim}{f' ({v.evidence})' if v.evidence else ''}"
        for v in rendered.verdicts
    ]
    parts += [f"note: {note}" for note in rendered.notes]
    return (
        "\n\n".join(parts[: 1 + len(rendered.tables)])
        + "\n\n"
        + "\n".join(parts[1 + len(rendered.tables) :])
    )


def _aligned(table: Table) -> str:
    lines_of_cells = [list(table.header), *_rows(table)]
    widths = [max(len(row[i]) for row in lines_of_cells) for i in range(len(table.header))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in [lines_of_cells[0], ["-" * width for width in widths], *lines_of_cells[1:]]
    ]
    return "\n".join([*([table.title] if table.title else []), *lines])


def _rows(table: Table) -> list[list[str]]:
    return [[NOT_RUN if value is None else str(value) for value in row] for row in table.rows]


def as_csv(rendered: Rendered) -> str:
    """Return all tables, each with its title in the first column, the verdicts and the notes."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for table in rendered.tables:
        lines.writerow(["table", *table.header])
        lines.writerows([table.title, *row] for row in _rows(table))
    if rendered.verdicts:
        lines.writerow(["verdict", "claim", "evidence"])
        lines.writerows([v.word, v.claim, v.evidence] for v in rendered.verdicts)
    lines.writerows(["note", note] for note in rendered.notes)
    return text.getvalue()


def as_markdown(
    artifact: Artifact, rendered: Rendered, about: Mapping[str, str], pictures: Sequence[str]
) -> str:
    """Return a page: tables, verdicts, pictures, notes, where the numbers come from."""
    parts = [f"# {artifact.paper}, {artifact.title}"]
    if MEANINGLESS in rendered.notes:
        parts.append(f"**{MEANINGLESS}**")
    for table in rendered.tables:
        head = [f"**{_plain(table.title)}**\n"] if table.title else []
        parts.append(
            "\n".join(
                [
                    *head,
                    _row(table.header),
                    _row(["---"] * len(table.header)),
                    *map(_row, _rows(table)),
                ]
            )
        )
    if rendered.verdicts:
        parts.append(
            "\n".join(
                f"- **{v.word}**: {_plain(v.claim)}"
                + (f" ({_plain(v.evidence)})" if v.evidence else "")
                for v in rendered.verdicts
            )
        )
    parts += [f"![{name}]({name}.svg)" for name in pictures]
    notes = [note for note in rendered.notes if note != MEANINGLESS]
    if notes:
        parts.append("\n".join(f"- {_plain(note)}" for note in notes))
    parts.append("\n".join(f"- {name}: {value}" for name, value in about.items()))
    return "\n\n".join(parts) + "\n"


def _row(values: Iterable[str]) -> str:
    return "| " + " | ".join(_plain(value) for value in values) + " |"


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def as_json(artifact: Artifact, rendered: Rendered, about: Mapping[str, str]) -> dict[str, Any]:
    """Return everything but the pictures as plain values."""
    return {
        "paper": artifact.paper,
        "name": artifact.name,
        "title": artifact.title,
        "tables": [
            {"title": t.title, "header": list(t.header), "rows": [list(row) for row in t.rows]}
            for t in rendered.tables
        ],
        "verdicts": [
            {"claim": v.claim, "verdict": v.word, "evidence": v.evidence} for v in rendered.verdicts
        ],
        "notes": list(rendered.notes),
        **about,
    }


def provenance_of(artifact: Artifact, scale: Scale, results: Results, total: int) -> dict[str, str]:
    """Say how the numbers were measured: command, scale, seeds, versions, machine, duration."""
    finished = list(results.by_job.items())
    about = {
        "command": f"python -m papers {artifact.paper} {artifact.name} --scale {scale}",
        "scale": scale,
        "cells": f"{len(finished)} of {total} run" if total else _without(artifact),
    }
    if finished:
        about["seeds"] = ", ".join(str(s) for s in sorted({job.seed for job, _ in finished}))
        about["versions"] = _different(_versions(result) for _, result in finished)
        about["machine"] = _different(_machine(result) for _, result in finished)
        seconds = [r.provenance.get("seconds") for _, r in finished]
        total_seconds = sum(float(s) for s in seconds if isinstance(s, int | float))
        about["duration"] = f"{format_duration(total_seconds)}, all cells one after the other"
    return about


def _without(artifact: Artifact) -> str:
    return "none at this scale" if artifact.jobs("paper") else "none: computed from formulas"


def _different(lines: Iterable[str]) -> str:
    return "; ".join(sorted(set(lines)))


def _versions(result: Result) -> str:
    versions = {**result.provenance.get("versions", {})}
    if python := result.provenance.get("python"):
        versions["Python"] = python
    names = ("isotrope", "torch", "transformers", "lightning", "numpy", "Python")
    return ", ".join(f"{name} {versions[name]}" for name in names if name in versions) or "unknown"


def _machine(result: Result) -> str:
    provenance = result.provenance
    kind = provenance.get("machine") or provenance.get("processor") or "unknown"
    threads = provenance.get("threads")
    return f"{kind}, {threads} thread{'s' * (threads != 1)} a cell" if threads else str(kind)


def with_notes(rendered: Rendered, scale: Scale, everything: Results) -> Rendered:
    """Return the same with notes on what a reader must know whatever it is a table of.

    Args:
        rendered: a table or figure.
        scale: of it.
        everything: its jobs, those that diverged included.
    """
    notes = [MEANINGLESS] if scale == "smoke" else []
    notes += [
        f"{job.label} has no numbers: {result.details['diverged']}"
        for job, result in everything.by_job.items()
        if "diverged" in result.details
    ]
    return replace(rendered, notes=[*notes, *rendered.notes])


def write(
    artifact: Artifact, rendered: Rendered, about: Mapping[str, str], output: Path
) -> list[Path]:
    """Write NAME.md, NAME.csv and the pictures as SVG; return the paths."""
    folder = output / artifact.paper
    pictures = {name: draw() for name, draw in rendered.pictures.items()}
    contents = {f"{name}.svg": picture.svg for name, picture in pictures.items()}
    contents[f"{artifact.name}.csv"] = as_csv(rendered).encode()
    page = as_markdown(artifact, rendered, about, list(pictures))
    contents[f"{artifact.name}.md"] = page.encode()
    return write_all(folder, contents)


def summary(rendered: Sequence[tuple[Artifact, Rendered]], scale: Scale) -> str:
    """Return the verdict on every claim, or the reason for none, as a page in Markdown."""
    words = Counter(
        verdict.word for _, rendered_one in rendered for verdict in rendered_one.verdicts
    )
    counted = ", ".join(
        f"{words[word]} {word}" for word in ("holds", "fails", "undecided", "not run")
    )
    lines = [f"# What became of the claims, at {scale} scale", "", f"{counted}.", ""]
    if scale == "smoke":
        lines += [f"**{MEANINGLESS}**", ""]
    lines += ["| | claim | verdict | measured |", "|---|---|---|---|"]
    for artifact, rendered_one in rendered:
        place = f"[{artifact.paper} {artifact.name}]({artifact.paper}/{artifact.name}.md)"
        rows = [(v.claim, v.word, v.evidence) for v in rendered_one.verdicts]
        for claim, word, evidence in rows or [(artifact.title, "no verdict", reason(rendered_one))]:
            lines.append(f"| {place} | {_plain(claim)} | {word} | {_plain(evidence)} |")
    return "\n".join(lines) + "\n"


def reason(rendered: Rendered) -> str:
    """Return why a table or figure has no verdict: its first note of its own."""
    return next((note for note in rendered.notes if note != MEANINGLESS), "")
