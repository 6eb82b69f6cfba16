"""PaperJob: one training or measurement, identified by its kind, its settings and its seed."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from isotrope.core import fingerprint

_WIDTH = 100  # characters of a title, where nobody gave one


@dataclass(frozen=True, eq=False)
class PaperJob:
    """One measurement.

    Two jobs with the same settings are equal: tables that need the same job share its result.

    Attributes:
        measurement: what is done: the name of a module in ``papers.measurements``.
        settings: plain values by name; its ``check`` refuses what it does not know.
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
        settings = json.dumps(
            _plain(self.settings), sort_keys=True, ensure_ascii=False, allow_nan=False
        )
        return fingerprint(self.measurement, settings, self.seed)

    @property
    def label(self) -> str:
        """One line for people."""
        return f"{self.measurement} {_cut(self.title or brief(self.settings))}, seed {self.seed}"

    def seeded(self, seed: int) -> "PaperJob":
        """Return the same with another seed."""
        return replace(self, seed=seed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PaperJob) and self.key == other.key

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
