"""Cell: one measurement that takes time, known by everything that was asked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from isotrope.core.fingerprint import fingerprint

__all__ = ["Cell"]


@dataclass(frozen=True, eq=False)
class Cell:
    """One measurement.

    Two cells are equal if they ask for the same; tables that ask for the same share its result.

    Attributes:
        work: what is done: the name of a module in ``isotrope.experiments.works``.
        settings: plain values by name; what the work does not know, its ``check`` refuses.
        seed: of everything random.
    """

    work: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def key(self) -> str:
        """16 hexadecimal digits of all of it."""
        told = json.dumps(dict(self.settings), sort_keys=True, ensure_ascii=False)
        return fingerprint(self.work, told, self.seed)

    @property
    def shown(self) -> str:
        """One line for people."""
        told = " ".join(f"{k}={_short(v)}" for k, v in self.settings.items())
        return f"{self.work} {told} seed={self.seed}"

    def seeded(self, seed: int) -> "Cell":
        """Return the same with another seed."""
        return replace(self, seed=seed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _short(value: Any) -> str:  # noqa: ANN401 - any plain value
    if isinstance(value, Mapping):
        return ",".join(f"{k}:{_short(v)}" for k, v in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ",".join(_short(v) for v in value) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
