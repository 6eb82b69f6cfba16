"""Present: tables and verdicts as text, CSV and Markdown, pictures as files."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrope.core.files import replacing
from isotrope.core.result import Result
from isotrope.experiments.reproduce.artifact import Artifact, Found, Scale, Shown, Table, Verdict

__all__ = ["as_csv", "as_json", "as_markdown", "as_text", "provenance_of", "summary", "write"]

NOT_RUN = "not run"


def as_text(artifact: Artifact, shown: Shown) -> str:
    """Return tables, verdicts and notes for a terminal."""
    parts = [f"{artifact.paper} {artifact.name}: {artifact.title}"]
    parts += [_aligned(table) for table in shown.tables]
    parts += [
        f"{v.word:<8}{v.claim}{f' ({v.evidence})' if v.evidence else ''}" for v in shown.verdicts
    ]
    parts += [f"note: {note}" for note in shown.notes]
    return (
        "\n\n".join(parts[: 1 + len(shown.tables)])
        + "\n\n"
        + "\n".join(parts[1 + len(shown.tables) :])
    )


def _aligned(table: Table) -> str:
    cells = [list(table.header), *_cells(table)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [cells[0], ["-" * width for width in widths], *cells[1:]]
    ]
    return "\n".join([*([table.title] if table.title else []), *lines])


def _cells(table: Table) -> list[list[str]]:
    return [[NOT_RUN if cell is None else str(cell) for cell in row] for row in table.rows]


def as_csv(shown: Shown) -> str:
    """Return all tables, each with its title in the first column, and the verdicts."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for table in shown.tables:
        lines.writerow(["table", *table.header])
        lines.writerows([table.title, *row] for row in _cells(table))
    if shown.verdicts:
        lines.writerow(["verdict", "claim", "evidence"])
        lines.writerows([v.word, v.claim, v.evidence] for v in shown.verdicts)
    return text.getvalue()


def as_markdown(
    artifact: Artifact, shown: Shown, about: Mapping[str, str], pictures: Sequence[str]
) -> str:
    """Return a page: tables, verdicts, pictures, notes, where the numbers come from."""
    parts = [f"# {artifact.paper} {artifact.name}: {artifact.title}"]
    for table in shown.tables:
        head = [f"**{_plain(table.title)}**\n"] if table.title else []
        parts.append(
            "\n".join(
                [
                    *head,
                    _row(table.header),
                    _row(["---"] * len(table.header)),
                    *map(_row, _cells(table)),
                ]
            )
        )
    if shown.verdicts:
        parts.append(
            "\n".join(
                f"- **{v.word}**: {_plain(v.claim)}"
                + (f" ({_plain(v.evidence)})" if v.evidence else "")
                for v in shown.verdicts
            )
        )
    parts += [f"![{name}]({name}.svg)" for name in pictures]
    if shown.notes:
        parts.append("\n".join(f"- {_plain(note)}" for note in shown.notes))
    parts.append("\n".join(f"- {name}: {value}" for name, value in about.items()))
    return "\n\n".join(parts) + "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def as_json(artifact: Artifact, shown: Shown, about: Mapping[str, str]) -> dict[str, Any]:
    """Return everything but the pictures as plain values."""
    return {
        "paper": artifact.paper,
        "name": artifact.name,
        "title": artifact.title,
        "tables": [
            {"title": t.title, "header": list(t.header), "rows": [list(row) for row in t.rows]}
            for t in shown.tables
        ],
        "verdicts": [
            {"claim": v.claim, "verdict": v.word, "evidence": v.evidence} for v in shown.verdicts
        ],
        "notes": list(shown.notes),
        **about,
    }


def provenance_of(artifact: Artifact, scale: Scale, found: Found, total: int) -> dict[str, str]:
    """Say how the numbers were measured: command, scale, seeds, versions, duration."""
    results = list(found.results.items())
    about = {
        "command": f"isotrope reproduce {artifact.paper} {artifact.name} --scale {scale}",
        "cells": f"{len(results)} of {total} run" if total else "none: computed from formulas",
    }
    if results:
        about["seeds"] = ", ".join(str(s) for s in sorted({cell.seed for cell, _ in results}))
        about["versions"] = "; ".join(sorted({_versions(result) for _, result in results}))
        seconds = sum(float(r.provenance.get("seconds", 0)) for _, r in results)
        about["duration"] = f"{seconds / 60:.0f} minutes, all cells one after the other"
    return about


def _versions(result: Result) -> str:
    versions = result.provenance.get("versions", {})
    named = ", ".join(
        f"{name} {versions[name]}" for name in ("isotrope", "torch") if name in versions
    )
    threads = result.provenance.get("threads")
    machine = result.provenance.get("processor", "")
    return f"{named} on {machine}" + (f", {threads} thread(s)" if threads else "")


def write(artifact: Artifact, shown: Shown, about: Mapping[str, str], output: Path) -> list[Path]:
    """Write NAME.md, NAME.csv and the pictures as SVG; return the paths."""
    folder = output / artifact.paper
    pictures = {name: draw() for name, draw in shown.pictures.items()}
    contents = {f"{name}.svg": picture.svg for name, picture in pictures.items()}
    contents[f"{artifact.name}.csv"] = as_csv(shown).encode()
    page = as_markdown(artifact, shown, about, list(pictures))
    contents[f"{artifact.name}.md"] = page.encode()
    for name, content in contents.items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
    return [folder / name for name in contents]


def summary(shown: Sequence[tuple[Artifact, Sequence[Verdict]]]) -> str:
    """Return all verdicts as one table in Markdown."""
    lines = ["| | claim | verdict | measured |", "|---|---|---|---|"]
    for artifact, verdicts in shown:
        place = f"[{artifact.paper} {artifact.name}]({artifact.paper}/{artifact.name}.md)"
        lines += [
            f"| {place} | {_plain(v.claim)} | {v.word} | {_plain(v.evidence)} |" for v in verdicts
        ]
    return "\n".join(lines) + "\n"
