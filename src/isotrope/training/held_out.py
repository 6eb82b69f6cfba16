"""Losses of held-out records during a training, which show overfitting without labels.

Nie et al. (2023, figures 1 and 3) compare three losses on training text and on held-out text:
overfitting begins when a held-out loss stops falling and rises. Alignment and uniformity of the
training text are measured on the batches. InfoNCE depends on the number of candidates; it is
therefore measured on as many training records as held-out ones.
"""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isotrope.core.autograd import modes_kept, seeded
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.measures.alignment import alignment
from isotrope.measures.uniformity import uniformity
from isotrope.paradigm import registry

HELD_OUT_COLUMNS = (
    "trained_contrastive",
    "held_out_contrastive",
    "held_out_alignment",
    "held_out_uniformity",
)
"""Columns of these losses in metrics.csv."""

MOST_HELD_OUT = 512
"""Largest number of measured records."""

_TEMPERATURE = 0.05
_CHUNK = 64  # texts embedded at once

Tokens = Sequence[Sequence[int] | NDArray[Any]]
"""Token ids of some texts."""


def held_out_losses(
    encoder: SentenceEncoder,
    head: nn.Module,
    held_out: tuple[Tokens, Tokens],
    trained: tuple[Tokens, Tokens],
    *,
    seed: int,
) -> dict[str, float]:
    """Return InfoNCE (temperature 0.05), alignment and uniformity of held-out records.

    Dropout is on, as in a training batch, because it makes the two views of a single text. The
    dropout masks are the same at every call. InfoNCE is also measured on the ``trained`` records.

    Returns:
        A number for each of :data:`HELD_OUT_COLUMNS`.
    """
    objective = registry.build("infonce", {"temperature": _TEMPERATURE})
    anchors, positives = _views(encoder, head, held_out, seed)
    values = (
        objective(*_views(encoder, head, trained, seed)),
        objective(anchors, positives),
        alignment(anchors, positives),
        (uniformity(anchors) + uniformity(positives)) / 2,
    )
    return dict(zip(HELD_OUT_COLUMNS, map(float, values), strict=True))


def _views(
    encoder: SentenceEncoder, head: nn.Module, sides: tuple[Tokens, Tokens], seed: int
) -> list[Tensor]:
    """Embeddings of anchors and positives in training mode, float64."""
    network = nn.ModuleList([encoder, head])
    with modes_kept(network), torch.no_grad(), seeded(seed, encoder.device):
        network.train()
        return [head(_embedded(encoder, rows)).double() for rows in sides]


def _embedded(encoder: SentenceEncoder, rows: Tokens) -> Tensor:
    parts = [encoder.of_tokens(rows[i : i + _CHUNK]) for i in range(0, len(rows), _CHUNK)]
    return torch.cat(parts).float()
