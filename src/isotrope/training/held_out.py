"""Losses of held-out records, logged during a training: overfitting shows without labels.

Nie et al. (2023, figures 1 and 3) watch three losses on text that is trained on and on text that
is not: where one of the latter has turned and rises, training has begun to overfit.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from isotrope.encoders.sentence import SentenceEncoder
from isotrope.measures.alignment import alignment
from isotrope.measures.uniformity import uniformity
from isotrope.paradigm import registry

__all__ = ["HELD_OUT_COLUMNS", "MOST_HELD_OUT", "held_out_losses"]

HELD_OUT_COLUMNS = ("held_out_contrastive", "held_out_alignment", "held_out_uniformity")
"""Columns of metrics.csv."""

MOST_HELD_OUT = 512
"""Records that are looked at, at most."""

_TEMPERATURE = 0.05
_CHUNK = 64  # texts embedded at once


def held_out_losses(
    encoder: SentenceEncoder,
    head: nn.Module,
    records: Sequence[Sequence[str]],
    *,
    max_length: int,
    seed: int,
) -> dict[str, float]:
    """Return InfoNCE at temperature 0.05, alignment and uniformity of held-out records.

    Dropout is on, as it is for the same measures of a batch that is trained on: its masks are what
    makes the two views of a single text. They are the same at every call.

    Args:
        encoder: as it is now; it is left as it was.
        head: what a training has on top of it, likewise.
        records: an anchor, and its positive where there is one.
        max_length: tokens that texts are cut to.
        seed: of the masks.

    Returns:
        A number for each of :data:`HELD_OUT_COLUMNS`.
    """
    network = nn.ModuleList([encoder, head])
    modes = [(module, module.training) for module in network.modules()]
    devices = [encoder.device] if encoder.device.type == "cuda" else []
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            network.train()
            anchors, positives = (
                head(_embedded(encoder, [record[:2][-side] for record in records], max_length))
                for side in (0, 1)
            )
    finally:
        for module, mode in modes:
            module.training = mode
    anchors, positives = anchors.double(), positives.double()
    values = (
        registry.build("infonce", {"temperature": _TEMPERATURE})(anchors, positives),
        alignment(anchors, positives),
        (uniformity(anchors) + uniformity(positives)) / 2,
    )
    return dict(zip(HELD_OUT_COLUMNS, map(float, values), strict=True))


def _embedded(encoder: SentenceEncoder, texts: Sequence[str], max_length: int) -> Tensor:
    rows, _ = encoder.tokenize(texts, max_length)
    batches = [encoder.pad(rows[i : i + _CHUNK]) for i in range(0, len(rows), _CHUNK)]
    parts = [
        encoder(**{name: ids.to(encoder.device) for name, ids in batch.items()})
        for batch in batches
    ]
    return torch.cat(parts).float()
