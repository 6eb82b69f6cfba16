"""Kinds: tells claims of a paper from errata, from checks of this software and from what no
measurement here can decide, by verdict_kinds.toml.
"""

import functools
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from papers.machinery.verdicts import Ruling

_FILE = Path(__file__).with_name("verdict_kinds.toml")


class UnmatchedKind(LookupError):
    """A row of the file finds no verdict, or more than the one erratum it is about."""


def with_kinds(artifact: str, verdicts: Sequence[Ruling], *, cpu: bool) -> list[Ruling]:
    """Return the verdicts with their kinds."""
    kinds = _kinds()
    changed = list(verdicts)

    def change(words: str, **kind: Any) -> list[int]:
        at = [i for i, verdict in enumerate(changed) if words in verdict.claim]
        if not at or ("erratum" in kind and len(at) > 1):
            raise UnmatchedKind(f"{artifact}: {words!r} is in {len(at)} claims")
        for i in at:
            changed[i] = replace(changed[i], **kind)
        return at

    for number, words in kinds["errata"].get(artifact, {}).items():
        change(words, erratum=number)
    for words in kinds["checks"].get(artifact, ()):
        change(words, check=True)
    for row in kinds["untestable"] if cpu else ():
        for words in row["claims"].get(artifact, ()):
            change(words, untestable=row["why"])
    for row in kinds["caveat"] if cpu else ():
        for words in row["claims"].get(artifact, ()):
            for i in change(words):
                evidence = "; ".join(filter(None, (changed[i].evidence, row["why"])))
                changed[i] = replace(changed[i], evidence=evidence)
    return changed


@functools.cache
def _kinds() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
