"""The result of an audit: as text, as JSON, and as files for a training.

The files are JSON lines, one record each, which ``isotrope train`` and the ``datasets`` library
read:

- ``cleaned.jsonl``: the rows without those apart and repeated, and of what is left of each group of
  likely false negatives the first;
- ``grouped.jsonl``: all rows;
- ``mined.jsonl``: with hard negatives, where they were asked for.

Each row has an integer ``label``, equal for rows that are likely to belong together or are in one
group of the data: ``isotrope train --groups label`` does not push apart what shares one, and
neither does ``ObjectiveLoss(..., groups=True)``, to which sentence-transformers hands ``label``.
A file with fewer than two rows, which no training takes, is not written.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isotrope.core.table import table as text_table
from isotrope.data.text.in_memory import record_line
from isotrope.diagnostics.audit.mining import Mined
from isotrope.diagnostics.audit.pairs import RowFindings
from isotrope.diagnostics.audit.push import Mutual, groups_of
from isotrope.diagnostics.audit.rows import PairedRows
from isotrope.diagnostics.audit.settings import Recommendation, Setting
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

__all__ = ["Audit", "AuditTable"]

_TOO_FEW = {
    "cleaned.jsonl": "rows are left without those whose positive is far away, repetitions and "
    "likely false negatives; check that the columns belong together, or raise --suspect",
    "mined.jsonl": "hard negatives were found that are in no group with their anchor; raise "
    "--hardness or --suspect",
}
_LISTED = 20  # pairs and rows of each kind in a table; the JSON has all
_WIDTH = 48  # characters of a text in a table


class AuditTable(NamedTuple):
    """A table of an audit: title, a sentence about it, headings, and rows of texts and numbers."""

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | float | None]]


@dataclass(frozen=True, repr=False)
class Audit:
    """What an objective will do to data at the first step of a training.

    ``print(audit)`` shows it as tables. Rows are numbered from 0 in the attributes; in everything
    that is printed or written they are told by their lines in the file, from 1.

    Attributes:
        rows: the records.
        encoder: the name of the encoder.
        objective: the objective, with the settings that it was given.
        batch_size: rows of a batch.
        settings: how the objective begins with each setting.
        recommendations: the values to begin with, and why.
        mutual: pairs of rows that push each other, the strongest first.
        suspects: how many of them, from the first, are likely false negatives.
        groups: int64 (n), equal for rows that are likely to belong together.
        found: rows that stand out.
        uncovered: what whitening uncovers: ``kind``, ``sentence`` and the scores.
        mined: hard negatives, or None.
    """

    rows: PairedRows
    encoder: str
    objective: Objective
    batch_size: int
    settings: Sequence[Setting]
    recommendations: Sequence[Recommendation]
    mutual: Mutual
    suspects: int
    groups: NDArray[np.int64]
    found: RowFindings
    uncovered: Mapping[str, Any]
    mined: Mined | None = None

    def __repr__(self) -> str:
        return f"Audit({self.title}: {self.suspects} likely false negatives)"

    def __str__(self) -> str:
        parts = [self.title]
        for table in self.tables():
            shown = [[_cell(value) for value in row] for row in table.rows]
            parts += [f"{table.title}\n{table.note}"]
            parts += [text_table(table.columns, shown)] if shown else []
        return "\n\n".join(parts)

    @property
    def title(self) -> str:
        """What was audited, in a line."""
        what = "texts" if self.rows.views == "dropout" else "pairs"
        return (
            f"{len(self.rows):,} {what} of {self.rows.name}, {self.encoder}, "
            f"{self.objective.name}, batches of {self.batch_size}"
        )

    @property
    def recommended(self) -> dict[str, float]:
        """The values to begin with, by setting."""
        return {each.name: each.value for each in self.recommendations}

    @property
    def flags(self) -> str:
        """The flags of ``isotrope train`` with the recommended values.

        Without a head, which would come between the embeddings and the objective.
        """
        name, chosen = self._chosen()
        words = [f"--objective {name}", *(f"--objective.{k} {_word(v)}" for k, v in chosen.items())]
        return " ".join([*words, f"--batch-size {self.batch_size} --head none"])

    @property
    def sentence_transformers(self) -> str:
        """The same for sentence-transformers: the loss, and an argument of its trainer."""
        name, chosen = self._chosen()
        if name == "infonce" and set(chosen) == {"temperature"}:
            scale = 1 / float(chosen["temperature"])
            loss = f"MultipleNegativesRankingLoss(model, scale={scale:.4g})"
        else:
            words = [repr(name), *(f"{key}={value!r}" for key, value in chosen.items())]
            loss = f"ObjectiveLoss(model, {', '.join(words)})"
        return f"{loss}, per_device_train_batch_size={self.batch_size}"

    def _chosen(self) -> tuple[str, dict[str, float | str]]:
        """Return the objective's name, and the settings that are not its defaults."""
        name, settings = registry.as_settings(self.objective)
        usual = registry.as_settings(registry.build(name))[1]
        own = {key: value for key, value in settings.items() if value != usual.get(key)}
        return name, {**own, **self.recommended}

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, as they are written to ``audit.json``."""
        lines, found = self.rows.lines, self.found
        rows = {
            name: lines[getattr(found, name)].tolist()
            for name in ("apart", "solved", "cut", "repeated", "lengths", "scripts")
        }
        members: dict[int, list[int]] = {}
        for line, group in zip(lines.tolist(), self.groups.tolist(), strict=True):
            members.setdefault(group, []).append(line)
        return {
            "data": self.rows.name,
            "rows": len(self.rows),
            "views": self.rows.views,
            "encoder": self.encoder,
            "objective": registry.as_settings(self.objective)[0],
            "batch_size": self.batch_size,
            "recommended": self.recommended,
            "reasons": {each.name: each.reason for each in self.recommendations},
            "train": self.flags,
            "sentence_transformers": self.sentence_transformers,
            "settings": [vars(setting) for setting in self.settings],
            "false_negatives": [
                {"rows": lines[pair].tolist(), "share": float(share), "push": float(push)}
                for pair, share, push in zip(
                    self.mutual.rows[: self.suspects],
                    self.mutual.share[: self.suspects],
                    self.mutual.push[: self.suspects],
                    strict=True,
                )
            ],
            "groups": [each for each in members.values() if len(each) > 1],
            **rows,
            "empty": self.rows.empty,
            "uncovered": dict(self.uncovered),
            "mined": None if self.mined is None else len(self.mined.rows),
        }

    def to_json(self) -> str:
        """Return all of it as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def tables(self) -> list[AuditTable]:
        """Return the tables that are printed and that the page shows."""
        return [self._settings(), self._pairs(), self._rows(), self._uncovered()]

    def files(self) -> dict[str, bytes]:
        """Return the files for a training, by their names, without those of :attr:`unwritten`."""
        lines = {"cleaned.jsonl": [self._line(i) for i in self._sound().tolist()]}
        lines["grouped.jsonl"] = [self._line(i) for i in range(len(self.rows))]
        if self.mined is not None:
            lines["mined.jsonl"] = [self._line(i, j) for i, j in self.mined.rows.tolist()]
        without = self.unwritten
        return {name: "".join(of).encode() for name, of in lines.items() if name not in without}

    @property
    def unwritten(self) -> dict[str, str]:
        """Why a file is not written, by its name: a training needs two rows."""
        counts = {"cleaned.jsonl": len(self._sound())}
        if self.mined is not None:
            counts["mined.jsonl"] = len(self.mined.rows)
        return {
            name: f"{name} is not written: fewer than two {_TOO_FEW[name]}"
            for name, count in counts.items()
            if count < 2
        }

    def _line(self, row: int, negative: int | None = None) -> str:
        """Return a row as a line; the positive of another is its hard negative, if one is given."""
        texts = self.rows.texts[row]
        if negative is not None:
            texts = (*texts[:2], self.rows.texts[negative][1])
        return record_line(texts, {"label": int(self.groups[row])})

    def _sound(self) -> NDArray[np.int64]:
        """Return the rows that are neither apart nor repeated, of those alike the lowest pair.

        All hard negatives of that pair stay.
        """
        dropped = np.union1d(self.found.apart, self.found.repeated)
        rows = np.setdiff1d(np.arange(len(self.rows)), dropped)
        _, first, group = np.unique(self._alike()[rows], return_index=True, return_inverse=True)
        marks = self.rows.marks[rows, :2]
        kept: NDArray[np.int64] = rows[(marks == marks[first[group]]).all(axis=1)]
        return kept

    def _alike(self) -> NDArray[np.int64]:
        """Return the groups of likely false negatives alone, without those of equal texts."""
        return groups_of(self.mutual.rows[: self.suspects], len(self.rows))

    def _settings(self) -> AuditTable:
        reasons = [f"{r.name} {r.value:g}: {r.reason}." for r in self.recommendations]
        why = (
            "no anchor has a negative"
            if all(row.dead is None for row in self.settings)
            else "of this objective no temperature, margin or ratio is varied"
        )
        note = " ".join(reasons) or f"Nothing to recommend: {why}."
        rows = [
            (
                f"{row.name} {row.value:g}{' (set)' if row.own else ''}",
                row.dissipation,
                _percent(row.dead),
                _percent(row.hardest_share),
                _percent(row.above_bound),
            )
            for row in self.settings
        ]
        headings = ("setting", "GD", "done", "hardest", "above bound")
        return AuditTable(
            "Settings", f"{note}\n{self.flags}\n{self.sentence_transformers}", headings, rows
        )

    def _pairs(self) -> AuditTable:
        sizes = np.unique(self._alike(), return_counts=True)[1]
        several, largest = int((sizes > 1).sum()), int(sizes.max())
        all_of = float(self.mutual.share[: self.suspects].sum())
        note = (
            f"{self.suspects:,} pairs of rows push each other as rows that belong together do. "
            f"They have {all_of:.1%} of all push and form {several:,} groups of up to {largest:,} "
            "rows."
            if self.suspects
            else "No two rows push each other as rows that belong together do."
        )
        rows = [
            (
                f"{self.rows.lines[i]} and {self.rows.lines[j]}",
                f"{share:.2%}",
                float(push),
                _short(self.rows.texts[i][0]),
                _short(self.rows.texts[j][0]),
            )
            for (i, j), share, push in list(
                zip(
                    self.mutual.rows[: self.suspects].tolist(),
                    self.mutual.share,
                    self.mutual.push,
                    strict=False,
                )
            )[:_LISTED]
        ]
        headings = ("rows", "of all push", "push", "text", "text of the other")
        return AuditTable("Likely false negatives", note, headings, rows)

    def _rows(self) -> AuditTable:
        found, lines = self.found, self.rows.lines
        kinds = (
            ("apart", found.apart, "the positive is farther than most other positives"),
            ("repeated", found.repeated, "a row before has the same texts"),
            ("cut", found.cut, "a text has more tokens than are read"),
            ("lengths", found.lengths, "a length stands out"),
            ("scripts", found.scripts, "in another script than most of its column"),
            ("solved", found.solved, "the objective is done with it at the first step"),
        )
        rows = [
            (name, len(rows), f"{len(rows) / len(self.rows):.1%}", _some(lines[rows]), meaning)
            for name, rows, meaning in kinds
        ]
        note = f"{self.rows.empty:,} further rows were left out because a text is empty."
        return AuditTable(
            "Rows", note, ("rows that are", "rows", "share", "lines", "meaning"), rows
        )

    def _uncovered(self) -> AuditTable:
        of = self.uncovered
        if of.get("raw") is None:
            return AuditTable("Whitening", str(of["sentence"]), (), ())
        note = (
            f"{of['score']} {of['raw']:.2f} as it is, {of['whitened']:.2f} whitened by "
            f"{of['texts']:,} other texts (95% interval of the difference {of['low']:+.2f} to "
            f"{of['high']:+.2f}), mean cosine {of['mean_cosine']:.2f}: {of['sentence']}."
        )
        return AuditTable("Whitening", note, (), ())


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(value: str | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else f"{value}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}"


def _short(text: str) -> str:
    """Return the beginning of a text, without what steers a terminal."""
    plain = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split())
    )
    return plain if len(plain) <= _WIDTH else plain[: _WIDTH - 3] + "..."


def _some(lines: NDArray[np.int64]) -> str:
    shown = ", ".join(map(str, lines[:6].tolist()))
    return shown + ", ..." * (len(lines) > 6)
