"""Reads the records of a file as training pairs them, and embeds both views once.

A row is one record that training would use: a single text, whose views are two passes with dropout;
two adjacent texts; or a pair. It has the line of its record in the file, counted from 1 (of
adjacent texts, the line of the second). Records with an empty text are left out, as in training.

Rows that share a text, up to case and punctuation, or a value in a column of groups, form a group:
training does not push them apart, and nothing here counts a push between them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.data.text.batches import joined_groups, unseen
from isotrope.data.text.corpora import Record, read
from isotrope.data.text.in_memory import is_in_memory, text_records
from isotrope.data.text.repeats import group_mark, hash64, near_identical
from isotrope.data.text.views import Former, ViewsName, resolve
from isotrope.encoders.sentence import SentenceEncoder

__all__ = ["Embedded", "EmbeddedTexts", "PairedRows", "embed_rows", "pair_rows", "read_rows"]

_PIECE = 64  # texts of one forward pass with dropout


@dataclass(frozen=True)
class PairedRows:
    """The records of a file, as training pairs them.

    Attributes:
        texts: n records: (text,), (anchor, positive) or (anchor, positive, hard negative).
        lines: int64 (n), the line of each in the file, from 1.
        views: how a positive is made: ``dropout``, ``adjacent`` or ``pairs``.
        name: the name of the file.
        empty: records left out because a text is empty.
        marks: uint64 (n x texts of a record), equal for texts that differ in case and punctuation
            only.
        grouped: uint64 (n), equal for rows of a group of their own; a row without one has the mark
            of its anchor.
    """

    texts: Sequence[tuple[str, ...]]
    lines: NDArray[np.int64]
    views: str
    name: str
    empty: int
    marks: NDArray[np.uint64]
    grouped: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Embedded:
    """Both views of n rows, as an encoder gives them.

    Attributes:
        anchors: n x d, raw.
        positives: n x d, raw.
        groups: int64 (n), equal for rows that are not negatives of each other.
        negatives: n x d, raw, a hard negative of each row; None where the rows have none.
        text_marks: uint64 (2 x n x 3), equal for texts that are near-identical, and for texts
            that are equal as they are cut; None keeps every hard negative in its batch.

    Raises:
        InputError: fewer than two rows, or embeddings that are not finite.
    """

    anchors: Tensor
    positives: Tensor
    groups: Tensor
    negatives: Tensor | None = field(default=None, kw_only=True)
    text_marks: NDArray[np.uint64] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if len(self.anchors) < 2:
            raise InputError(f"{len(self.anchors)} row is too few to compare; give at least 2")
        views = {"anchor": self.anchors, "positive": self.positives}
        if self.negatives is not None:
            views["hard negative"] = self.negatives
        for name, rows in views.items():
            broken = (~rows.isfinite()).any(dim=1).nonzero().flatten()
            if len(broken):
                raise InputError(
                    f"the {name} of row {int(broken[0])} has an embedding that is not finite (NaN "
                    "or infinite): the weights of the encoder are broken; take another"
                )

    def __len__(self) -> int:
        return len(self.anchors)

    def batch(self, rows: Tensor) -> Views:
        """Return the views of some rows (their numbers, b integers) as one batch.

        A hard negative that is a text of the batch already is left out, as in training.
        """
        negatives = None
        if self.negatives is not None:
            hard = rows
            if self.text_marks is not None:
                marks = self.text_marks[:, rows.numpy()].transpose(0, 2, 1)
                new = np.all([unseen(own, [a, p]) for a, p, own in marks], axis=0)
                hard = rows[torch.from_numpy(new)]
            negatives = self.negatives[hard] if len(hard) else None
        return Views(self.anchors[rows], self.positives[rows], negatives, groups=self.groups[rows])


@dataclass(frozen=True)
class EmbeddedTexts(Embedded):
    """Both views of n rows of text, and what the tokenizer says of them.

    Attributes:
        cut: n booleans, whether a text of the row has more tokens than training reads.
        lengths: int64 (n x texts of a row), tokens of its texts, cut or not.
    """

    cut: NDArray[np.bool_]
    lengths: NDArray[np.int64]


def read_rows(
    data: object,
    *,
    columns: Sequence[str] | None = None,
    groups: str | None = None,
    views: ViewsName = "auto",
) -> PairedRows:
    """Read a file, or texts in memory, as training reads them.

    Args:
        data: one file that ``isotrope train`` reads; or texts or pairs in memory.
        columns: the columns to read from a table.
        groups: a column of a file; rows that are equal in it are not negatives of each other.
        views: how a positive is made, as in training.

    Raises:
        InputError: anything wrong with the data; fewer than two rows; a folder.
    """
    if is_in_memory(data):
        if groups is not None:
            raise InputError(
                f"groups {groups}: an audit reads groups from a file; write the data to one"
            )
        name, records = "the data", _in_memory(data, columns or ())
    else:
        path = Path(str(data))
        if path.is_dir():
            raise InputError(
                f"{path} is a folder; give one file: rows are named by their lines (a folder of "
                "pictures is for isotrope.audit_images)"
            )
        name, records = path.name, read([path], columns=columns, groups=groups)
    return pair_rows(records, name=name, views=views)


def pair_rows(
    records: Iterator[Record],
    *,
    name: str,
    views: ViewsName = "auto",
    most: int | None = None,
    seed: int = 0,
) -> PairedRows:
    """Pair records as training pairs them.

    Args:
        records: of one file, in its order.
        name: of the file.
        views: how a positive is made, as in training.
        most: how many rows, drawn among all of them; None for all.
        seed: of the draw.

    Raises:
        InputError: anything wrong with the records; fewer than two rows.
    """
    first = next(records, None)
    if first is None:
        raise InputError(f"{name} holds no text; give at least two records")
    former, draw = Former(resolve(views, first), holdout=0.0, seed=0), np.random.default_rng(seed)
    texts: list[tuple[str, ...]] = []
    lines: list[int] = []
    groups: list[str] = []
    seen = _Remembered(records, first)
    for count, formed in enumerate(former.form(seen), start=1):
        if most is None or len(texts) < most:
            texts.append(formed.texts)
            lines.append(seen.last.line)
            groups.append(formed.group)
        elif (place := int(draw.integers(count))) < most:
            texts[place], lines[place] = formed.texts, seen.last.line
            groups[place] = formed.group
    if len(texts) < 2:
        raise InputError(
            f"{name}: {len(texts)} row with text is too few to compare; give at least 2"
        )
    marks = [[hash64(near_identical(text)) for text in record] for record in texts]
    grouped = [group_mark(group, own[0]) for group, own in zip(groups, texts, strict=True)]
    return PairedRows(
        texts,
        np.array(lines),
        former.views,
        name,
        former.empty,
        np.array(marks, np.uint64),
        np.array(grouped, np.uint64),
    )


def embed_rows(
    encoder: SentenceEncoder,
    rows: PairedRows,
    *,
    max_length: int = 32,
    prompts: tuple[str, str] = ("", ""),
    seed: int = 0,
    progress: bool = False,
) -> EmbeddedTexts:
    """Embed both views of every row, and its hard negative, cut as training cuts them.

    Args:
        encoder: the encoder that training will begin with.
        rows: the records.
        max_length: the most tokens of a text, as ``isotrope train --max-length``.
        prompts: put before anchors, and before positives and negatives.
        seed: of dropout.
        progress: show a bar on stderr.

    Raises:
        InputError: a length or prompts that the encoder cannot take, or weights that are broken.
    """
    encoder.check_prompts(*prompts)
    limit = min(encoder.max_length, max_length)
    # encode() puts the encoder's own prompt there itself
    columns = [[encoder.prompt + text for text in c] for c in _prompted(rows, prompts)]
    ids = [encoder.tokenize(column, encoder.max_length)[0] for column in columns]
    lengths = np.array([[len(row) for row in column] for column in ids]).T
    if rows.views == "dropout":
        views = _with_dropout(encoder, encoder.tokenize(columns[0], limit)[0], seed)
    else:
        views = [
            torch.from_numpy(encoder.encode(column, max_length=limit, progress=progress))
            for column in _prompted(rows, prompts)
        ]
    groups = torch.from_numpy(joined_groups(np.column_stack([rows.marks[:, :2], rows.grouped])))
    cut = np.asarray((lengths > limit).any(axis=1))
    hard: dict[str, Any] = {}
    if len(views) > 2:
        inputs = [
            [hash64(str(row).encode()) for row in encoder.tokenize(c, limit)[0]] for c in columns
        ]
        hard = {
            "negatives": views[2],
            "text_marks": np.stack([rows.marks, np.array(inputs, np.uint64).T]),
        }
    return EmbeddedTexts(views[0], views[1], groups, cut, lengths, **hard)


def _prompted(rows: PairedRows, prompts: tuple[str, str]) -> list[list[str]]:
    """Return the anchors, and the positives and hard negatives where they are texts."""
    columns = enumerate(zip(*rows.texts, strict=True))
    return [[prompts[min(number, 1)] + text for text in column] for number, column in columns]


def _in_memory(data: object, columns: Sequence[str]) -> Iterator[Record]:
    for number, record in enumerate(text_records(data, columns), start=1):
        texts = tuple((text or "").strip() for text in record)
        yield Record(texts, Path("the data"), number, opens=number == 1)


class _Remembered:
    """Records one after the other; ``last`` is the newest that was taken."""

    def __init__(self, records: Iterable[Record], first: Record) -> None:
        self.last, self._records = first, records

    def __iter__(self) -> Iterator[Record]:
        yield self.last
        for record in self._records:
            self.last = record
            yield record


def _with_dropout(
    encoder: SentenceEncoder, ids: Sequence[Sequence[int]], seed: int
) -> list[Tensor]:
    """Embed token ids twice with dropout, the longest first; the encoder's modes are restored."""
    order = np.argsort([-len(row) for row in ids], kind="stable")
    views = [torch.empty(len(ids), encoder.dimension) for _ in range(2)]
    modes = [(module, module.training) for module in encoder.modules()]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder.train()
            for first in range(0, len(ids), _PIECE):
                piece = order[first : first + _PIECE]
                padded = encoder.pad([ids[i] for i in piece])
                inputs = {name: value.to(encoder.device) for name, value in padded.items()}
                for view in views:
                    view[torch.from_numpy(piece)] = encoder(**inputs).float().cpu()
    finally:
        for module, mode in modes:
            module.training = mode
    return views
