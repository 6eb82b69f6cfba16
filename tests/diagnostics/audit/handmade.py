"""Embeddings that are drawn, for rows whose texts are numbers."""

import numpy as np
import torch

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
    }
    return EmbeddedTexts(anchors, positives, **{**plain, **fields})  # type: ignore[arg-type]


def rows(n: int = 200) -> PairedRows:
    return read_rows([(f"question {i}", f"answer {i}") for i in range(n)])
