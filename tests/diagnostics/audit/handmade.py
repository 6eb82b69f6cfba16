"""Embeddings that are drawn, for rows whose texts are numbers."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from isotrope.diagnostics.audit.push import Ledger, mutual_push
from isotrope.diagnostics.audit.rows import EmbeddedTexts, PairedRows, read_rows


def embedded(n: int = 200, d: int = 48, *, noise: float = 0.3, seed: int = 0) -> EmbeddedTexts:
    """Return n anchors drawn evenly, each positive its anchor with noise."""
    draw = torch.Generator().manual_seed(seed)
    anchors = torch.nn.functional.normalize(torch.randn(n, d, generator=draw))
    positives = anchors + noise * torch.randn(n, d, generator=draw) / d**0.5
    return of(anchors, positives)


def of(anchors: torch.Tensor, positives: torch.Tensor, **fields: object) -> EmbeddedTexts:
    n = len(anchors)
    plain = {
        "groups": torch.arange(n),
        "cut": np.zeros(n, bool),
        "lengths": np.full((n, 2), 9),
        "limits": (32, 256, 512),
    }
    return EmbeddedTexts(anchors, positives, **{**plain, **fields})  # type: ignore[arg-type]


def rows(n: int = 200) -> PairedRows:
    return read_rows([(f"question {i}", f"answer {i}") for i in range(n)])


class Mutual(NamedTuple):
    """Pairs of rows that are among each other's partners, the strongest first."""

    rows: NDArray[np.int64]
    push: NDArray[np.float64]
    share: NDArray[np.float64]


def mutual(book: Ledger) -> Mutual:
    row, place = np.nonzero(book.partners >= 0)
    pairs = np.sort(np.stack([row, book.partners[row, place]], axis=1), axis=1)
    rows, counts = np.unique(pairs, axis=0, return_counts=True)
    pairs = rows[counts == 2]
    push, share = mutual_push(book, pairs)
    order = np.argsort(-push, kind="stable")
    return Mutual(pairs[order], push[order], share[order])
