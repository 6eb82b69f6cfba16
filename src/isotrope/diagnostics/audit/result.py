"""The result of an audit: measurements of the first training step, and suspicious rows.

The modules ``texts`` and ``pictures`` add the parts that differ between texts and pictures.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from isotrope.core.files import tidy, write_all
from isotrope.core.legible import counted
from isotrope.core.lock import exclusive_lock
from isotrope.core.result import json_text
from isotrope.core.table import TitledTable
from isotrope.data.text.repeats import groups_of
from isotrope.diagnostics.audit.alike import Alike
from isotrope.diagnostics.audit.settings import Recommendation, Setting
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

TextOf = Callable[[int], str]  # the text of a row, by its number
AUDIT_FILES = ("audit.html", "audit.json", "cleaned.jsonl", "grouped.jsonl", "mined.jsonl")
"""The files that an audit writes to its folder."""

LISTED = 20  # pairs in a table; the JSON has all
_SMALL = 1e-4  # share of all push below which a table shows only "<"
_LEGEND = (
    "GD: gradient dissipation, a factor on the gradient of an anchor (1: full strength, 0: nothing "
    "left to learn). solved: share of anchors with a GD below 0.01. hardest: share of the push on "
    "an anchor that comes from its most similar negative. above bound: among the anchors with a GD "
    "of at least 0.01, share that a small step brings closer to their positive."
)
_EVIDENCE = (
    "The evidence is a difference of cosines. If it is above 0, two rows are nearer to each other "
    "than to their nearest other rows. `--suspect` sets the smallest evidence of a listed pair."
)


@dataclass(frozen=True, repr=False, kw_only=True)
class Measured:
    """The measurements that audits of texts and of pictures share.

    Attributes:
        objective: The objective that is audited.
        batch_size: Number of rows in a batch.
        settings: One record for each tried value of a setting, with measurements of the first step.
        alike: Pairs of rows that may belong together, from highest to lowest evidence.
        suspect: Smallest evidence of a likely false negative.
        suspects: Number of likely false negatives. They are the first pairs of ``alike``.
        groups: Group of each row, int64 (n); rows of one group are likely to belong together.
        found: A dict from a kind of unusual rows (see the module ``pairs``) to row numbers.
    """

    objective: Objective
    batch_size: int
    settings: Sequence[Setting]
    alike: Alike
    suspect: float
    suspects: int
    groups: NDArray[np.int64]
    found: Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, repr=False, kw_only=True)
class Audit(Measured, ABC):
    """The effect of an objective on data at the first step of a training.

    ``print(audit)`` shows the effect as tables. In the attributes, rows have numbers from 0; in
    tables and JSON, rows have the names in :attr:`names`.

    Attributes:
        encoder: Name of the encoder.
        recommendations: Recommended values of settings, with reasons.
    """

    encoder: str
    recommendations: Sequence[Recommendation]

    meanings: ClassVar[Mapping[str, str]]
    """A dict from each kind of unusual rows to the explanation that the table prints."""

    @property
    @abstractmethod
    def title(self) -> str:
        """One line on the audited data, encoder and objective."""

    @property
    @abstractmethod
    def names(self) -> Sequence[int | str]:
        """The name of each row: its line or file, for example."""

    @property
    @abstractmethod
    def flags(self) -> str:
        """The flags of a training with the recommended values."""

    @abstractmethod
    def tables(self) -> list[TitledTable]:
        """Return the tables for terminal and page."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title}: {self.suspects} likely false negatives)"

    def __str__(self) -> str:
        return "\n\n".join([self.title, *map(str, self.tables())])

    @property
    def recommended(self) -> dict[str, float]:
        """The recommended values, by setting."""
        return {each.name: each.value for each in self.recommendations}

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, as in ``audit.json``."""
        names, members = self.names, dict[int, list[int | str]]()
        for name, group in zip(names, self.groups.tolist(), strict=True):
            members.setdefault(group, []).append(name)
        return {
            "encoder": self.encoder,
            "objective": registry.as_settings(self.objective)[0],
            "batch_size": self.batch_size,
            "recommended": self.recommended,
            "reasons": {each.name: each.reason for each in self.recommendations},
            "train": self.flags,
            "settings": [vars(setting) for setting in self.settings],
            "false_negatives": [
                {"rows": [names[row] for row in pair], **numbers}
                for pair, numbers in self._suspected()
            ],
            "groups": [each for each in members.values() if len(each) > 1],
            **{kind: self._named(self.found[kind]) for kind in self.meanings},
        }

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json_text(self.to_dict())

    def files(self) -> dict[str, bytes]:
        """Return the data files to write beside the page: a dict from names to contents."""
        return {}

    def write(self, folder: Path, page: str) -> None:
        """Write ``audit.html`` (the page), ``audit.json`` and data files; remove earlier ones."""
        html = page.encode("utf-8", "replace")
        contents = {"audit.json": self.to_json().encode(), "audit.html": html, **self.files()}
        with exclusive_lock(folder, f"writing an audit to {folder}"):
            tidy(folder)
            write_all(folder, contents, AUDIT_FILES if (folder / "audit.json").exists() else ())

    def _named(self, rows: NDArray[np.int64]) -> list[int | str]:
        names = self.names
        return [names[row] for row in rows.tolist()]

    def _flags_of(self, own: Mapping[str, float | str]) -> str:
        """Return objective, its settings (``own`` and recommended) and batch size as flags."""
        flags = [f"--objective {registry.as_settings(self.objective)[0]}"]
        for key, value in {**own, **self.recommended}.items():
            flags.append(f"--objective.{key} {value if isinstance(value, str) else f'{value:g}'}")
        return " ".join([*flags, f"--batch-size {self.batch_size}"])

    def _suspected(self) -> Iterator[tuple[list[int], dict[str, float]]]:
        """Yield the likely false negatives: two rows, and their evidence, share and push."""
        numbers = {name: getattr(self.alike, name) for name in ("evidence", "share", "push")}
        for place in range(self.suspects):
            known = {name: float(values[place]) for name, values in numbers.items()}
            yield self.alike.rows[place].tolist(), known

    def _grouped(self) -> NDArray[np.int64]:
        """Group the rows that are likely false negatives of each other; ignore given groups."""
        return groups_of(self.alike.rows[: self.suspects], len(self.groups))

    def _settings_table(self, *lines: str, withheld: str = "") -> TitledTable:
        """Return the table of settings; ``withheld`` says why such data get no recommendations."""
        reasons = [f"{r.name} {r.value:g}: {r.reason}." for r in self.recommendations]
        why_none = withheld or self._reason_for_no_recommendation()
        note = " ".join(reasons) or f"Nothing to recommend: {why_none}."
        rows = [
            (
                self._marked(row),
                row.dissipation,
                _percent(row.solved),
                _percent(row.hardest_share),
                _percent(row.above_bound),
            )
            for row in self.settings
        ]
        headings = ("setting", "GD", "solved", "hardest", "above bound")
        return TitledTable("Settings", "\n".join([note, *lines, _LEGEND]), headings, rows)

    def _reason_for_no_recommendation(self) -> str:
        if all(row.solved is None for row in self.settings):
            return "no anchor has a negative in its batch"
        if any(row.name == "temperature" for row in self.settings):
            return "the gradient dissipation of this objective does not depend on its temperature"
        return "this objective has no temperature, margin or ratio"

    def _marked(self, row: Setting) -> str:
        """Return the name of a row of settings, with a mark if it is set or recommended."""
        marks = {"set": row.own, "recommended": self.recommended.get(row.name) == row.value}
        words = ", ".join(mark for mark, applies in marks.items() if applies)
        return f"{row.name} {row.value:g}" + f" ({words})" * bool(words)

    def _sentence_on_suspects(self, noun: str) -> str:
        """Return a sentence on the likely false negatives; ``noun`` is the word for rows."""
        push = float(self.alike.share[: self.suspects].sum())
        if not self.suspects:
            return (
                f"No likely false negatives: no two {noun} seem to belong together (highest "
                f"evidence: {max(self.alike.evidence, default=0.0):.3f}; limit: "
                f"`--suspect {self.suspect:g}`)."
            )
        if self.suspects == 1:
            return f"1 pair of {noun} seems to belong together. It causes {push:.1%} of all push."
        sizes = np.unique(self._grouped(), return_counts=True)[1]
        return (
            f"{self.suspects:,} pairs of {noun} seem to belong together. They cause {push:.1%} of "
            f"all push, in {counted((sizes > 1).sum(), 'group')} of up to {sizes.max():,} {noun}."
        )

    def _pairs_table(
        self, noun: str, heading: str = "", text_of: TextOf | None = None, note: str = ""
    ) -> TitledTable:
        """Return the table of likely false negatives; ``heading`` is that of the texts' columns."""
        rows: list[tuple[str | float, ...]] = [
            (
                "{} and {}".format(*(self.names[row] for row in pair)),
                known["evidence"],
                f"{known['share']:.2%}" if known["share"] >= _SMALL else f"< {_SMALL:.2%}",
                *(() if text_of is None else map(text_of, pair)),
            )
            for pair, known in itertools.islice(self._suspected(), LISTED)
        ]
        note += f"\n{_EVIDENCE}" * bool(self.suspects) + sentence_on_unlisted(self.suspects)
        headings = [noun, "evidence", "of all push"]
        headings += [] if text_of is None else [heading, f"{heading} of the other"]
        note = f"{self._sentence_on_suspects(noun)}\n{note}".strip()
        return TitledTable("Likely false negatives", note, headings, rows)

    def _unusual_table(
        self, noun: str, heading: str, note: str, text_of: TextOf | None = None
    ) -> TitledTable:
        """Return the table of unusual rows; ``heading`` is that of the column with their names."""
        lines: list[tuple[str | int, ...]] = []
        for kind, meaning in self.meanings.items():
            rows = self.found[kind]
            share, some = f"{len(rows) / len(self.groups):.1%}", self._some(rows)
            first = [] if text_of is None else [text_of(int(rows[0])) if len(rows) else ""]
            lines.append((kind, len(rows), share, some, meaning, *first))
        headings = [f"{noun} that are", noun, "share", heading, "meaning"]
        headings += [] if text_of is None else ["the first one"]
        return TitledTable(noun.capitalize(), note, headings, lines)

    def _some(self, rows: NDArray[np.int64]) -> str:
        return ", ".join(map(str, self._named(rows[:6]))) + ", ..." * (len(rows) > 6)


def sentence_on_unlisted(count: int) -> str:
    """Return a sentence on the rows that a table of ``count`` rows leaves out, if it does."""
    more = f" The first {LISTED} are listed, and all are in audit.json (--output)."
    return more if count > LISTED else ""


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}"
