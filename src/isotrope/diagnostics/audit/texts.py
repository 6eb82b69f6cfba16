"""The result of an audit of texts: as tables, as JSON, and as files for a training.

``isotrope train`` and the ``datasets`` library read the files. Each line is one row as JSON.

- ``cleaned.jsonl``: no rows listed as *apart* or *repeated* (see the module ``pairs``), and only
  one of several rows that seem to belong together.
- ``grouped.jsonl``: all rows.
- ``mined.jsonl``: rows with mined hard negatives, if these were requested.

Each row has an integer ``label``. Rows of one group, and rows that seem to belong together, have
the same label. ``isotrope train --groups label`` and ``ObjectiveLoss(..., groups=True)`` in
sentence-transformers do not push these rows apart. Single texts are in the column ``anchor``. Files
of fewer than 2 rows are not written.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from isotrope.core.legible import counted, shortened
from isotrope.core.table import TitledTable
from isotrope.data.text.copies import NearCopies
from isotrope.data.text.repeats import joined_groups
from isotrope.diagnostics.audit.result import LISTED, Audit, sentence_on_unlisted
from isotrope.diagnostics.audit.rows import PairedRows
from isotrope.diagnostics.verdicts.forces import FALSE_NEGATIVES
from isotrope.paradigm import registry

_TOO_FEW = {
    "cleaned.jsonl": "rows are left once repeated rows, rows that are apart and likely false "
    "negatives are removed; check that the columns belong together, or raise --suspect",
    "mined.jsonl": "hard negatives are below the limits --hardness and --suspect; raise these "
    "limits",
}
_OTHERWISE = (
    "Use these values in another trainer, or with `--objective`. `isotrope train` without flags "
    "does not need them: it chooses objective, temperature (0.05), learning rate and epochs "
    "together. docs/guide/choose.md says which temperature to believe if the two differ."
)
_BY_LABEL = "The positive is another row of the same label; either text may be the odd one."
_CUT = 0.05  # share of rows with a cut text above which the audit advises to change something
_PUSHED = 0.01  # the same for the share of all push that likely false negatives cause
_NOTHING = "Nothing: the audit found no reason to change the data or the limit of tokens."
_WIDTH = 48  # characters of a text in a table


@dataclass(frozen=True, repr=False, kw_only=True)
class TextAudit(Audit):
    """The effect of an objective on texts at the first step of a training.

    The name of a row is its line in the file, or its number in data without lines, from 1.

    Attributes:
        limits: Three numbers of tokens: the length at which training cuts a text, the length at
            which the encoder does, and the largest length that is possible for the encoder.
        near_copies: Number of anchors or of positives with a near-copy, whichever is larger.
        uncovered: The gain from whitening, as a dict with the fields of ``Uncovered``.
        mined: Mined hard negatives, int64 (m x 2): numbers of two rows, of the anchor, and of the
            row whose positive is the negative; None if none were requested.
    """

    rows: PairedRows
    limits: tuple[int, int, int]
    near_copies: NearCopies
    uncovered: Mapping[str, Any]
    mined: NDArray[np.int64] | None = None

    meanings: ClassVar[Mapping[str, str]] = {
        "apart": "the anchor is nearer to most other positives",
        "repeated": "an earlier row has the same texts",
        "cut": "a text is too long, so training cuts its end",
        "lengths": "a text is much longer or shorter than most others",
        "scripts": "a text is in a script that is rare in its column",
        "solved": "nothing is left to learn at the first step",
    }

    @property
    def names(self) -> Sequence[int | str]:
        """The line or the number of each row."""
        lines: list[int | str] = self.rows.lines.tolist()
        return lines

    @property
    def title(self) -> str:
        """One line on the audited data, encoder and objective."""
        what = "texts" if self.rows.columns < 2 else "pairs"
        if self.rows.columns > 2:
            what += " with hard negatives"
        sides = [len(np.unique(marks)) for marks in self.rows.marks.T[:2]]
        if len(sides) > 1 and min(sides) < len(self.rows):
            what += f" ({sides[0]:,} different anchors and {sides[1]:,} positives, without case "
            what += "and punctuation)"
        return (
            f"{len(self.rows):,} {what} of {self.rows.name}, {self.encoder}, "
            f"{self.objective.name}, batches of {self.batch_size}"
        )

    @property
    def flags(self) -> str:
        """The flags of ``isotrope train`` with the recommended values.

        ``--head none`` is one of them, because the audit measures embeddings without a head.
        """
        return f"{self._flags_of(self._own())} --head none"

    @property
    def sentence_transformers(self) -> str:
        """The recommended loss and batch size, as code for sentence-transformers."""
        name, chosen = registry.as_settings(self.objective)[0], {**self._own(), **self.recommended}
        if name == "infonce" and set(chosen) == {"temperature"}:
            scale = 1 / float(chosen["temperature"])
            loss = f"MultipleNegativesRankingLoss(model, scale={scale:.4g})"
        else:
            words = [repr(name), *(f"{key}={value!r}" for key, value in chosen.items())]
            loss = f"ObjectiveLoss(model, {', '.join(words)})"
        return f"{loss}, per_device_train_batch_size={self.batch_size}"

    def _own(self) -> dict[str, float | str]:
        """Return the settings of the objective that differ from its defaults."""
        name, settings = registry.as_settings(self.objective)
        usual = registry.as_settings(registry.build(name))[1]
        return {key: value for key, value in settings.items() if value != usual.get(key)}

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, as in ``audit.json``."""
        return {
            "data": self.rows.name,
            "rows": len(self.rows),
            "views": self.rows.views,
            **super().to_dict(),
            "sentence_transformers": self.sentence_transformers,
            "advice": list(self.advice()),
            "near_copies": asdict(self.near_copies),
            "empty": self.rows.empty,
            "uncovered": dict(self.uncovered),
            "mined": None if self.mined is None else len(self.mined),
        }

    def tables(self) -> list[TitledTable]:
        """Return the tables for terminal and page."""
        note = f"Skipped: {self.rows.left_out}." if self.rows.left_out else ""
        sizes = np.unique(joined_groups(self.rows.marks), return_counts=True)[1]
        if self.rows.views != "adjacent" and len(linked := sizes[sizes > 1]):
            but = (
                ", except in groups of over a twentieth of all rows, such as the largest: there, "
                "it pushes rows apart that share no text themselves"
            ) * bool(20 * linked.max() > len(self.rows))  # as joined_unless_large decides
            note += (
                f" {linked.sum():,} rows share a text with another row, directly or through others "
                f"({counted(len(linked), 'group')} of up to {linked.max():,}). `isotrope train` "
                f"does not push them apart{but}."
            )
        advice = "\n".join(f"- {line}" for line in self.advice())
        return [
            TitledTable("Advice", advice or _NOTHING, (), ()),
            self._pairs_table("rows", "texts", self._shown),
            self._unusual_table("rows", "row numbers", note.strip(), self._shown),
            *self._apart(),
            self._uncovered(),
            self._settings_table(_OTHERWISE, self.flags, self.sentence_transformers),
        ]

    def _apart(self) -> Iterator[TitledTable]:
        """Yield a table with the texts of the first rows that are apart, unless there are none."""
        if rows := self.found["apart"][:LISTED].tolist():
            partners = self._partners()
            shown = [[shortened(text, _WIDTH) for text in self.rows.texts[i][:2]] for i in rows]
            cells = [
                (self.names[i], *texts, *partners[i : i + 1])
                for i, texts in zip(rows, shown, strict=True)
            ]
            note = _BY_LABEL * bool(partners) + sentence_on_unlisted(len(self.found["apart"]))
            headings = ("row", "text", "its positive", "row of the positive")[: len(cells[0])]
            yield TitledTable("Rows that are apart", note.strip(), headings, cells)

    def _partners(self) -> list[int | str]:
        """Return the name of each positive's row in labelled texts; an empty list for others."""
        rows = self.rows
        keys = [(mark, *texts[:2]) for mark, texts in zip(rows.grouped, rows.texts, strict=True)]
        names = {key[:2]: name for key, name in zip(keys, self.names, strict=True)}
        partners = [names.get((key[0], *key[2:])) for key in keys]
        return [name for name in partners if name is not None] if all(partners) else []

    def advice(self) -> Iterator[str]:
        """Yield what to change before a training, most important first."""
        found, n = self.found, len(self.rows)
        if self.rows.unread_labels:
            yield f"{self.rows.unread_labels}."
        if len(found["apart"]):
            single = "dropout changes such a text more than another text differs from it"
            pair = "the two texts of such a row may not belong together, or be a hard pair to keep"
            yield (
                f"Check {self.rows.name} at the rows {self._some(found['apart'])}: "
                f"{single if self.rows.columns < 2 else pair}. cleaned.jsonl (--output) leaves "
                "these rows out."
            )
        limit, own, most = self.limits
        if len(found["cut"]) > _CUT * n:
            longer = f"try `--max-length {min(2 * limit, most)}`"
            longer = longer if own < most else "choose an encoder for longer texts"
            remedy = f"Split long texts into passages, or {longer}"
            if limit < own:
                remedy = f"Train with `--max-length {own}`, the limit of the encoder"
            cut = f"{len(found['cut']) / n:.0%} of the rows have a text of over {limit:,} tokens"
            yield f"{remedy}: {cut}."
        pushed = float(self.alike.share[: self.suspects].sum())
        if pushed > _PUSHED:
            yield (
                "Read some of the likely false negatives below. If they belong together, train "
                "with `--groups label` on grouped.jsonl (--output), which has all rows: rows of "
                "one group do not push each other. For a trainer without groups, use "
                "cleaned.jsonl, which has one row of each group."
            )

        if FALSE_NEGATIVES.thresholds[0].crossed_by(self.near_copies.share):
            yield (
                "Write one text for all of its near-copies, or train with `--groups` and a column "
                f"that has one value for all copies of a text: {self.near_copies.share:.2%} of the "
                f"texts{self.near_copies.limit} have a near-copy. Ignore this if the few words "
                "that differ matter."
            )

    def _shown(self, row: int) -> str:
        return " -> ".join(shortened(text, 60) for text in self.rows.texts[row][:2])

    def files(self) -> dict[str, bytes]:
        """Return the files to train on, without ``unwritten``: a dict from names to contents."""
        texts = self.rows.texts
        rows = {"cleaned.jsonl": [(i, texts[i]) for i in self._sound().tolist()]}
        rows["grouped.jsonl"] = list(enumerate(texts))
        if self.mined is not None:
            rows["mined.jsonl"] = [(i, (*texts[i][:2], texts[j][1])) for i, j in self.mined]
        without = self.unwritten
        return {name: self._lines(own) for name, own in rows.items() if name not in without}

    def write(self, folder: Path, page: str) -> None:
        """Write the files; print which rows or files are left out on stderr."""
        super().write(folder, page)
        written = [] if "cleaned.jsonl" in self.unwritten else [self.cleaned]
        if self.mined is not None and "mined.jsonl" not in self.unwritten:
            rows = counted(len(np.unique(self.mined[:, 0])), "row")
            written.append(f"mined.jsonl: {counted(len(self.mined), 'negative')} for {rows}")
        print(*written, *self.unwritten.values(), sep="\n", file=sys.stderr)

    @property
    def cleaned(self) -> str:
        """A sentence on the rows that ``cleaned.jsonl`` leaves out."""
        apart, repeated = (len(self.found[name]) for name in ("apart", "repeated"))
        out = len(np.union1d(self.found["apart"], self.found["repeated"]))
        rows = len(self._sound())
        return (
            f"cleaned.jsonl has {rows:,} of the {len(self.rows):,} rows; left out are rows that "
            f"are apart ({apart:,}) or repeated ({repeated:,}), and all but one row of each group "
            f"({len(self.rows) - rows - out:,})"
        )

    @property
    def unwritten(self) -> dict[str, str]:
        """The files with too few rows: a dict from the file's name to a reason and a remedy."""
        counts = {"cleaned.jsonl": len(self._sound())}
        if self.mined is not None:
            counts["mined.jsonl"] = len(self.mined)
        return {
            name: f"{name} is not written: fewer than two {_TOO_FEW[name]}"
            for name, count in counts.items()
            if count < 2
        }

    def _lines(self, rows: Sequence[tuple[int, tuple[str, ...]]]) -> bytes:
        """Return rows, each with its number and texts, as lines of JSON."""
        # A column has one type, so that datasets reads it: null fills missing negatives. A single
        # text is no column "text", because texts with labels would become pairs by their labels.
        count = max(len(texts) for _, texts in rows) - 2
        negatives = ["negative"] if count == 1 else [f"negative_{i + 1}" for i in range(count)]
        names = ["anchor", "positive", *negatives][: count + 2]
        labels = self.groups.tolist()
        lines = ({**dict(zip_longest(names, texts)), "label": labels[i]} for i, texts in rows)
        return "".join(f"{json.dumps(line)}\n" for line in lines).encode()

    def _sound(self) -> NDArray[np.int64]:
        """Return the rows of ``cleaned.jsonl``: of each group, only the first pair."""
        # Rows that repeat this pair with other hard negatives stay.
        dropped = np.union1d(self.found["apart"], self.found["repeated"])
        rows = np.setdiff1d(np.arange(len(self.rows)), dropped)
        _, first, group = np.unique(self._grouped()[rows], return_index=True, return_inverse=True)
        texts, pairs = self.rows.texts, zip(rows.tolist(), rows[first[group]].tolist(), strict=True)
        return np.array([i for i, j in pairs if texts[i][:2] == texts[j][:2]], np.int64)

    def _uncovered(self) -> TitledTable:
        of = self.uncovered
        note = of["sentence"].removesuffix(".") + "."
        if of.get("raw") is None:
            note = f"Not measured: {note}"
        else:
            note = (
                f"{of['score']}: {of['raw']:.2f} without whitening, {of['whitened']:.2f} with the "
                f"mean and covariance of {of['texts']:,} other texts (95% interval of the "
                f"difference {of['low']:+.2f} to {of['high']:+.2f}). "
                f"Mean cosine: {of['mean_cosine']:.2f}. "
                f"{note[0].upper()}{note[1:]}"
            )
        return TitledTable("Whitening", note, (), ())
