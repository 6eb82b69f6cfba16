"""Pages: tables and verdicts are written as text, CSV and Markdown, pictures as SVG files."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from isotrope.core import Result, atomic_replace, format_duration
from isotrope.core import table as aligned
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import WORDS, Ruling, with_kinds

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
    for sheet in rendered.tables:
        parts.append(sheet.title + "\n" * bool(sheet.title) + aligned(sheet.header, _rows(sheet)))
    parts += [f"{v.word}: {v.claim}{_told(v)}" for v in rendered.verdicts]
    parts += [f"note: {note}" for note in rendered.notes]
    return (
        "\n\n".join(parts[: 1 + len(rendered.tables)])
        + "\n\n"
        + "\n".join(parts[1 + len(rendered.tables) :])
    )


def _told(verdict: Ruling) -> str:
    """In brackets, why a claim cannot be decided and what was measured."""
    told = "; ".join(filter(None, (verdict.untestable, verdict.evidence)))
    return f" ({_plain(told)})" if told else ""


def _rows(table: Sheet) -> list[list[str]]:
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
                f"- **{_word(v, '../../../')}**: {_plain(v.claim)}{_told(v)}"
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


def render(artifact: Artifact, scale: Scale, everything: Results) -> Rendered:
    """Return a table or figure, with the kinds of its verdicts and notes that every page has."""
    numbers = {job: r for job, r in everything.by_job.items() if "diverged" not in r.details}
    rendered = artifact.render(scale, Results(numbers))
    name = f"{artifact.paper} {artifact.name}"
    verdicts = with_kinds(name, rendered.verdicts, cpu=scale == "cpu")
    notes = [MEANINGLESS] if scale == "smoke" else []
    notes += [
        f"{job.label} has no numbers: {result.details['diverged']}"
        for job, result in everything.by_job.items()
        if "diverged" in result.details
    ]
    return replace(rendered, verdicts=verdicts, notes=[*notes, *rendered.notes])


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
    for name, content in contents.items():
        with atomic_replace(folder / name) as temporary:
            temporary.write_bytes(content)
    return [folder / name for name in contents]


def summary(rendered: Sequence[tuple[Artifact, Rendered]], scale: Scale) -> str:
    """Return three lists as a page in Markdown: claims, errata, checks of this software."""
    every = [(artifact, verdict) for artifact, one in rendered for verdict in one.verdicts]
    claims = [row for row in every if not row[1].erratum and not row[1].check]
    errata = [row for row in every if row[1].erratum]
    checks = [row for row in every if row[1].check]
    words = Counter(verdict.word for _, verdict in claims)
    open_ = [v.holds for _, v in claims if v.untestable]
    counted = ", ".join(f"{words[word]} {word}" for word in WORDS if words[word])
    ran = [verdict.holds for _, verdict in checks if verdict.holds is not None]
    lines = [f"# What became of the claims of tables and figures, at {scale} scale", ""]
    if scale == "smoke":
        lines += [f"**{MEANINGLESS}**", ""]
    lines += [
        f"{len(claims)} claims: {counted}. Of those not testable here, our numbers agree with "
        f"{open_.count(True)} and contradict {open_.count(False)}. "
        f"{len(errata)} further ones are errata, or what the released code does otherwise. "
        f"{ran.count(True)} of {len(ran)} checks of this software pass. "
        "The claims of papers/claims.toml, on trained sentence embeddings and on images, are "
        "decided [elsewhere](../claims.md).",
        "",
        *_listed("Claims", claims),
        "",
        *_listed("Errata", errata),
        "",
        *_listed("Checks", checks),
    ]
    return "\n".join(lines) + "\n"


def _listed(title: str, rows: Sequence[tuple[Artifact, Ruling]]) -> list[str]:
    lines = [f"## {title}", "", "| | claim | verdict | measured |", "|---|---|---|---|"]
    for artifact, verdict in rows:
        told = "; ".join(filter(None, (verdict.untestable, verdict.evidence)))
        lines.append(
            f"| {_place(artifact)} | {_plain(verdict.claim)} | {_word(verdict)} | {_plain(told)} |"
        )
    return lines


def _place(artifact: Artifact) -> str:
    return f"[{artifact.paper} {artifact.name}]({artifact.paper}/{artifact.name}.md)"


def _word(verdict: Ruling, up: str = "../../") -> str:
    """The verdict; that of an erratum is a link to it."""
    if not verdict.erratum:
        return verdict.word
    return f"[{verdict.word}]({up}errata.md#{verdict.erratum})"
