"""The tables and figures of all papers, as papers/artifacts.toml has them."""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrope.core import InputError, nearest
from papers.machinery.artifact import Artifact
from papers.machinery.rows import described

FILE = Path(__file__).parents[1] / "artifacts.toml"


def artifacts(papers: Sequence[str] | None = None) -> list[Artifact]:
    """Return every table and figure of these papers, or of all, in the order of the file."""
    return [one for one in _all(FILE) if papers is None or one.paper in papers]


@functools.cache
def _all(file: Path) -> tuple[Artifact, ...]:
    table: Mapping[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    return tuple(described(row, table["papers"][row["paper"]]) for row in table["artifact"])


def find_artifacts(paper: str, names: Sequence[str]) -> list[Artifact]:
    """Return the tables and figures of a paper with these names; all of them without names.

    Raises:
        InputError: an unknown paper or name.
    """
    papers = list(dict.fromkeys(artifact.paper for artifact in artifacts()))
    if paper not in papers:
        owners = [a.paper for a in artifacts() if a.name == paper]
        of = f" ({paper} of which one? {', '.join(owners)})" if owners else nearest(paper, papers)
        raise InputError(f"unknown paper {paper!r}{of}; papers: {', '.join(papers)}")
    of_paper = {artifact.name: artifact for artifact in artifacts([paper])}
    for name in names:
        if name not in of_paper:
            raise InputError(
                f"{paper} has no {name!r}{nearest(name, of_paper)}; it has {', '.join(of_paper)}"
            )
    return [of_paper[name] for name in dict.fromkeys(names or of_paper)]
