"""The page of errata: what is proven wrong in the papers, written from papers/errata.toml."""

import tomllib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from isotrope.core.files import atomic_replace

__all__ = ["Erratum", "errata", "errata_page", "write_errata_page"]

FILE = Path(__file__).parents[2] / "papers" / "errata.toml"

_PAGE = """# Errata of the papers

Here are {count} places in the papers behind this library where what is printed is proven wrong, or
where the authors' released code does something else. Each has a proof or a counter-example in two
lines, and a test that runs with every change of the repository.

Numbers stay as they are: cite *isotrope, erratum E23*, with a link to its heading. The library
implements the corrected formulas; where a paper and its code differ, both can be trained
(`variant`). Whether the papers' *experiments* come out again is [another question](replication.md).

{sections}
"""


@dataclass(frozen=True, kw_only=True)
class Erratum:
    """One of the rows; the head of the file says what its parts are."""

    number: str
    paper: str
    where: str
    printed: str
    right: str
    proof: str
    shown_by: str
    artifact: str = ""


def errata(file: Path = FILE) -> list[Erratum]:
    """Return all errata, numbered in the order of the file."""
    rows = tomllib.loads(file.read_text(encoding="utf-8"))["erratum"]
    return [Erratum(number=f"E{n}", **row) for n, row in enumerate(rows, start=1)]


def errata_page(rows: list[Erratum]) -> str:
    """Return the page in Markdown, one section for each paper."""
    sections = []
    for paper, group in groupby(rows, key=lambda row: row.paper):
        sections += [f"## {paper}", *map(_entry, group)]
    return _PAGE.format(count=len(rows), sections="\n\n".join(sections))


def _entry(row: Erratum) -> str:
    file, _, test = row.shown_by.partition("::")
    shown = f"[`{test}`](../{file})"
    if row.artifact:
        page = row.artifact.replace(" ", "/")
        shown += f", [`python -m papers {row.artifact}`](results/reproduce/{page}.md)"
    return "\n".join(
        [
            f'### <a id="{row.number}"></a>{row.number}: {row.where}',
            "",
            f"- Printed: {row.printed}.",
            f"- Right: {row.right}.",
            f"- Proof: {row.proof}",
            f"- Shown by: {shown}",
        ]
    )


def write_errata_page(folder: Path) -> None:
    """Write errata.md into a folder."""
    with atomic_replace(folder / "errata.md") as temporary:
        temporary.write_text(errata_page(errata()), encoding="utf-8")
