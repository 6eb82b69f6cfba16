"""Reads the records of a file, pairs them as training does, and embeds both views.

A row is one training record: a pair, two adjacent texts, or a single text that is embedded twice
with dropout. The name of a row is its line in the file, counted from 1, or its number in a file
without lines. For adjacent texts, it is that of the second text. Records with an empty text are
skipped, as in training.

Rows form a group if they share a text (except for case and most punctuation) or a value in the
column of groups. Training does not push rows of one group apart, so the audit counts no push
between them. As in training, adjacent texts and large sets of pairs are not linked through others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.errors import InputError, place
from isotrope.core.progress import embedding
from isotrope.core.views import Views
from isotrope.data.schemas import EMPTY, Reading
from isotrope.data.sources import files_of, is_in_memory, read_all, unread_labels
from isotrope.data.text.batches import unseen
from isotrope.data.text.repeats import (
    group_mark,
    hash64,
    joined_groups,
    joined_unless_large,
    near_identical,
)
from isotrope.data.text.views import Formed, Former, ViewsName, resolve
from isotrope.encoders.sentence import SentenceEncoder, check_prompts

_PIECE = 64  # texts in one forward pass with dropout


@dataclass(frozen=True)
class PairedRows:
    """The records of a file, as training pairs them.

    Attributes:
        texts: The n records: tuples (text,) or (anchor, positive, hard negative, ...).
        lines: Line of each record in the file, counted from 1, int64 (n).
        views: Source of the positives: ``dropout``, ``adjacent`` or ``pairs``.
        name: Name of the file, or "the data" for texts in memory.
        empty: Number of records that were skipped because a text is empty.
        left_out: What was skipped and why; an empty text if nothing was.
        marks: Hashes of anchors and positives, uint64 (n x 1 for single texts, or n x 2).
            Near-identical texts have the same hash.
        grouped: Hash of each record's group, uint64 (n). Without a group, the anchor is hashed.
        unread_labels: Advice on class labels that are not read as such; may be empty.
    """

    texts: Sequence[tuple[str, ...]]
    lines: NDArray[np.int64]
    views: str
    name: str
    empty: int
    left_out: str
    marks: NDArray[np.uint64]
    grouped: NDArray[np.uint64]
    unread_labels: str = ""

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def columns(self) -> int:
        """Number of columns: 1 for single texts, 2 for pairs, 3 for pairs with hard negatives."""
        return min(3, max(map(len, self.texts)))


@dataclass(frozen=True)
class HardNegatives:
    """The hard negatives of n rows, q in all. Two texts count as equal if either hash is equal.

    Attributes:
        embeddings: Embeddings of the hard negatives, q x d.
        owners: Row of each hard negative in ascending order, int64 (q).
        marks: Two hashes of each hard negative, uint64 (2 x q). The first is equal for
            near-identical texts, the second for texts with equal tokens after cutting.
        row_marks: The same hashes of the rows' anchors and positives, uint64 (2 x n x 2).
    """

    embeddings: Tensor
    owners: NDArray[np.int64]
    marks: NDArray[np.uint64]
    row_marks: NDArray[np.uint64]

    def of_batch(self, rows: NDArray[np.int64]) -> Tensor | None:
        """Return the hard negatives of ``rows`` whose texts are not in the batch already."""
        first, end = (np.searchsorted(self.owners, rows, side) for side in ("left", "right"))
        places = np.concatenate([np.arange(*ends) for ends in zip(first, end, strict=True)])
        in_batch = self.row_marks[:, rows].reshape(2, -1)
        new = [unseen(self.marks[kind, places], [in_batch[kind]]) for kind in (0, 1)]
        places = places[new[0] & new[1]]
        return self.embeddings[torch.from_numpy(places)] if len(places) else None


@dataclass(frozen=True)
class Embedded:
    """The embeddings of both views of n rows.

    Attributes:
        anchors: Embeddings of the anchors, not normalised, n x d.
        positives: Embeddings of the positives, not normalised, n x d.
        groups: Group of each row, int64 (n). Rows of one group are not negatives of each other.
        texts: Hash of each row's anchor and positive, int64 (n x 2). Rows with a common hash are
            not negatives of each other either. None if all such rows are in one group.
        hard: Hard negatives of all rows, or None.

    Raises:
        InputError: There are fewer than two rows, or an embedding is not finite.
    """

    anchors: Tensor
    positives: Tensor
    groups: Tensor
    texts: Tensor | None = field(default=None, kw_only=True)
    hard: HardNegatives | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if len(self.anchors) < 2:
            raise InputError(f"give at least 2 rows; found {len(self.anchors)}")
        views = {"anchor": self.anchors, "positive": self.positives}
        if self.hard is not None:
            views["hard negative"] = self.hard.embeddings
        for name, rows in views.items():
            broken = (~rows.isfinite().all(dim=1)).nonzero().flatten()
            if len(broken):
                raise InputError(
                    f"use another encoder: the embedding of {name} {int(broken[0])} is NaN or "
                    "infinite, so the encoder's weights are broken"
                )

    def __len__(self) -> int:
        return len(self.anchors)

    def same(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return b x c booleans, True where two rows are not negatives of each other."""
        same = self.groups[rows, None] == self.groups[columns]
        if self.texts is not None:
            for mine, other in product(self.texts[rows].T, self.texts[columns].T):
                same |= mine[:, None] == other
        return same

    def batch(self, rows: Tensor) -> Views:
        """Return one batch, which consists of the rows with the numbers ``rows``.

        A hard negative whose text is already in the batch is skipped, as in training.
        """
        negatives = None if self.hard is None else self.hard.of_batch(rows.numpy())
        groups = self.groups[rows]
        if self.texts is not None:
            groups = torch.from_numpy(joined_groups(np.column_stack([groups, self.texts[rows]])))
        return Views(self.anchors[rows], self.positives[rows], negatives, groups=groups)


@dataclass(frozen=True)
class EmbeddedTexts(Embedded):
    """The embeddings of both views of n rows of text, and their lengths in tokens.

    Attributes:
        cut: Whether training cuts at least one text of a row, n booleans.
        lengths: Number of tokens of each text before cutting, int64 (n x 1, or n x 2 for pairs).
        limits: Three numbers of tokens: the length at which training cuts a text, the length at
            which the encoder does, and the largest length that is possible for the encoder.
    """

    cut: NDArray[np.bool_]
    lengths: NDArray[np.int64]
    limits: tuple[int, int, int]


def read_rows(
    data: object,
    *,
    columns: Sequence[str] | None = None,
    groups: str | None = None,
    views: ViewsName = "auto",
) -> PairedRows:
    """Read a file, or texts in memory, with the same rules as a training."""
    name = "the data"
    if not is_in_memory(data):
        (data, *others), _ = files_of([str(data)])
        name = data.name
        if others:
            raise InputError(
                f"give one file, such as {place(data)}: an audit numbers the rows of one file, and "
                f"this folder has {len(others)} more (isotrope.audit_images audits pictures)"
            )
    rows = pair_rows(reading := read_all(data, columns or (), groups), name=name, views=views)
    return replace(rows, unread_labels=unread_labels(reading) if views == "auto" else "")


def pair_rows(
    reading: Reading,
    *,
    name: str,
    views: ViewsName = "auto",
    read: int | None = None,
    most: int | None = None,
    seed: int = 0,
) -> PairedRows:
    """Pair records as training pairs them.

    Args:
        reading: The records of one file, in order.
        name: Name of the file.
        views: Source of the positives, as in training.
        read: Number of records to read, from the first one on. None: all records.
        most: Largest number of rows to keep, drawn at random from those read. None: all rows.
        seed: Seed of the random draw.
    """
    records = islice(reading, read)
    first = next(records)
    former, draw = Former(resolve(views, first), holdout=0.0, seed=0), np.random.default_rng(seed)
    kept: list[Formed] = []
    for count, formed in enumerate(former.form(chain([first], records)), start=1):
        if most is None or len(kept) < most:
            kept.append(formed)
        elif (place := int(draw.integers(count))) < most:
            kept[place] = formed
    texts = [formed.texts for formed in kept]
    if len(texts) < 2:
        raise InputError(f"give at least 2 rows with text: {name} has {len(texts)}")
    marks = [[hash64(near_identical(text)) for text in record[:2]] for record in texts]
    grouped = [group_mark(formed.group, formed.texts[0]) for formed in kept]
    return PairedRows(
        texts,
        np.array([formed.line for formed in kept]),
        former.views,
        name,
        reading.left[EMPTY],
        reading.left_out,
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
) -> EmbeddedTexts:
    """Embed both views and the hard negatives of every row, with texts cut as in training.

    ``prompts`` are put before each anchor, and before each positive and hard negative. ``seed`` is
    that of the dropout with which single texts are embedded twice.
    """
    check_prompts(encoder, *prompts)
    limit = min(encoder.max_length, max_length)
    # without the encoder's own prompt, which encode() adds itself
    columns, owners = _prompted(rows, prompts)
    whole = [[encoder.prompt + text for text in column] for column in columns]
    counts = [np.array(encoder.token_counts(column)) for column in whole]
    if rows.views == "dropout":
        with embedding("anchors and positives"):
            views = encoder.with_dropout(encoder.tokenize(whole[0], limit)[0], seed, _PIECE)
    else:
        views = []
        for name, column in zip(("anchors", "positives", "hard negatives"), columns, strict=False):
            with embedding(name):
                views.append(torch.from_numpy(encoder.encode(column, max_length=limit)))
    lengths, hard = np.stack(counts[:2], axis=1), None
    cut = np.asarray((lengths > limit).any(axis=1))
    if rows.columns > 2:
        cut[owners[counts[2] > limit]] = True
        tokens = (encoder.tokenize(column, limit)[0] for column in whole)
        inputs = [np.array([hash64(str(row).encode()) for row in c], np.uint64) for c in tokens]
        own = np.array([hash64(near_identical(t)) for r in rows.texts for t in r[2:]], np.uint64)
        row_marks = np.stack([rows.marks, np.stack(inputs[:2], axis=1)])
        hard = HardNegatives(views[2], owners, np.stack([own, inputs[2]]), row_marks)
    groups, texts = _groups(rows)
    limits = (limit, encoder.max_length, encoder.positions)
    return EmbeddedTexts(views[0], views[1], groups, cut, lengths, limits, texts=texts, hard=hard)


def _groups(rows: PairedRows) -> tuple[Tensor, Tensor | None]:
    """Return the group of each row, and hashes of texts that rows of several groups share."""
    own = joined_unless_large(rows.marks) if rows.views == "pairs" else rows.marks[:, 0]
    groups = joined_groups(np.column_stack([own, rows.grouped]))
    linked = joined_groups(np.column_stack([rows.marks, groups.view(np.uint64)]))
    are_shared = len(np.unique(linked)) < len(np.unique(groups))
    texts = torch.from_numpy(rows.marks.view(np.int64)) if are_shared else None
    return torch.from_numpy(groups), texts


def _prompted(
    rows: PairedRows, prompts: tuple[str, str]
) -> tuple[list[list[str]], NDArray[np.int64]]:
    """Return anchors, positives and hard negatives with prompts, and the row of each negative."""
    columns = [[prompts[0] + record[0] for record in rows.texts]]
    if len(rows.texts[0]) > 1:
        columns.append([prompts[1] + record[1] for record in rows.texts])
    if rows.columns > 2:
        columns.append([prompts[1] + text for record in rows.texts for text in record[2:]])
    counts = [len(record) - 2 for record in rows.texts]
    return columns, np.repeat(np.arange(len(rows)), np.maximum(counts, 0))
