"""The page of errata: what is wrong in the papers as printed, written from papers/errata.toml."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isotrope.core.files import write_text

FILE = Path(__file__).parents[2] / "papers" / "errata.toml"

KINDS = {
    "result": "Changes a formula, a bound or a statement",
    "misprint": "Misprints and slips",
    "code": "The released code does something else",
    "withdrawn": "Withdrawn",
}
"""The parts of the page, in order."""

_INTRODUCTION = {
    "result": "What the paper prints here is wrong. The correction changes a formula, a bound or a "
    "statement.",
    "misprint": "The right form of each formula or statement here is known: from another part "
    "of the paper, from a proof or from the released code. In some entries, two parts of the "
    "paper contradict each other.",
    "code": "The paper is not wrong here, but its published numbers come from the released code. "
    "isotrope can train with either form (the setting `variant`).",
    "withdrawn": "These entries were wrong. Their numbers stay, because they may be cited.",
}

_PAGE = """# Errata of the papers

Use this page before you implement a formula from one of the four papers. isotrope implements the
right form of each formula. [Another page](replication.md) reports whether the *experiments*
replicate.

| entries | count |
|---|---|
| a formula, a bound or a statement that is wrong as printed | {result} |
| misprints and slips | {misprint} |
| differences between a paper and its released code | {code} |
| withdrawn entries, which were wrong | {withdrawn} |

Cite an entry as *isotrope, erratum E23*; the number will not change. To check an entry, run
`pytest tests/papers/test_errata.py -k E23`. The test fails if the printed formula is right, or if
the corrected formula is wrong. The formulas have the letters of the papers
([notation](notation.md)).

We read these versions of the papers:

{versions}

{sections}
"""


@dataclass(frozen=True, kw_only=True)
class Erratum:
    """One of the rows; the head of the file says what its parts are."""

    number: str
    kind: str
    paper: str
    where: str
    printed: str
    right: str
    proof: str
    quote: Sequence[str] = ()
    formula: Mapping[str, str] = field(default_factory=dict)
    shown_by: str = ""
    artifact: str = ""


def document(file: Path = FILE) -> dict[str, Any]:
    """Return the file as it is: ``versions`` and ``files`` by paper, and the rows."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def errata(file: Path = FILE) -> list[Erratum]:
    """Return all errata, in the order of their numbers."""
    rows = [Erratum(**row) for row in document(file)["erratum"]]
    return sorted(rows, key=lambda row: int(row.number[1:]))


def errata_page(rows: list[Erratum]) -> str:
    """Return the page in Markdown: a section for each kind, the papers within it."""
    versions = document()["versions"]
    sections, counts = [], {}
    for kind, title in KINDS.items():
        of_kind = [row for row in rows if row.kind == kind]
        counts[kind] = len(of_kind)
        sections += [f"## {title}", _INTRODUCTION[kind]]
        for paper in versions:
            entries = [_entry(row) for row in of_kind if row.paper == paper]
            sections += [f"### {paper}", *entries] if entries else []
    said = "\n".join(f"- **{paper}**: {version}." for paper, version in versions.items())
    return _PAGE.format(**counts, versions=said, sections="\n\n".join(sections))


def _entry(row: Erratum) -> str:
    lines = [
        f'#### <a id="{row.number}"></a>{row.number}: {row.where}',
        "",
        f"- {'The entry said' if row.kind == 'withdrawn' else 'Printed'}: {row.printed}.",
    ]
    if row.kind == "withdrawn":
        return "\n".join([*lines, f"- Withdrawn: {row.proof}"])
    lines += [
        f"- {'Code' if row.kind == 'code' else 'Right'}: {row.right}.",
        f"- Why: {row.proof}",
    ]
    shown = [f"[test](../{row.shown_by.partition('::')[0]})"] if row.shown_by else []
    if row.artifact:
        page = row.artifact.replace(" ", "/")
        shown.append(f"[`python -m papers {row.artifact}`](results/reproduce/{page}.md)")
    return "\n".join([*lines, *([f"- Check: {', '.join(shown)}"] if shown else [])])


def write_errata_page(folder: Path) -> None:
    """Write errata.md into a folder."""
    write_text(folder / "errata.md", errata_page(errata()))
