"""Job: one measurement that takes time, known by everything that was asked."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from isotrope.core.fingerprint import fingerprint

__all__ = ["Job", "brief"]

_WIDTH = 100  # characters of a title, where nobody gave one


@dataclass(frozen=True, eq=False)
class Job:
    """One measurement.

    Two jobs are equal if they ask for the same; tables that ask for the same share its result.

    Attributes:
        measurement: what is done: the name of a module in ``papers.measurements``.
        settings: plain values by name; what the work does not know, its ``check`` refuses.
        seed: of everything random.
        title: what tells it from others of its kind, for people; it does not count.
    """

    measurement: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    title: str = ""

    @functools.cached_property
    def key(self) -> str:
        """16 hexadecimal digits of all of it; 1 and 1.0 are the same."""
        told = json.dumps(
            _plain(self.settings), sort_keys=True, ensure_ascii=False, allow_nan=False
        )
        return fingerprint(self.measurement, told, self.seed)

    @property
    def label(self) -> str:
        """One line for people."""
        return f"{self.measurement} {_cut(self.title or brief(self.settings))}, seed {self.seed}"

    def seeded(self, seed: int) -> "Job":
        """Return the same with another seed."""
        return replace(self, seed=seed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def brief(settings: Mapping[str, Any]) -> str:
    """Return ``name=value`` for each setting, numbers short."""
    return " ".join(f"{name}={_short(value)}" for name, value in settings.items())


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def _plain(value: Any) -> Any:  # noqa: ANN401 - any plain value
    """The same value in one spelling."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _short(value: Any) -> str:  # noqa: ANN401 - any plain value
    if isinstance(value, Mapping):
        return ",".join(f"{k}:{_short(v)}" for k, v in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ",".join(_short(v) for v in value) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
