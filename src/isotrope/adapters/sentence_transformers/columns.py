"""Embeds the columns of a batch together, in chunks of texts of similar length.

A forward pass over a column would pad every text to the longest one. Here the texts of all columns
form one list, sorted by length and cut into chunks that need little padding
(``isotrope.data.text.batches.cut``). The chunks do not change the negatives of any row.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from torch import Tensor, nn

from isotrope.core.distributed import all_reduce_max, world_size
from isotrope.data.text.batches import cut, fewer
from isotrope.encoders.device import pass_overhead

_PROMPT = "prompt_length"  # one value for all rows, a number or a tensor


def embed_sorted(model: nn.Module, columns: Sequence[dict[str, Any]]) -> list[Tensor]:
    """Return the embeddings of each column, n x d.

    Some columns cannot be joined, so each gets its own forward pass: images whose patches are not
    rows, inputs without padding, columns for different ``Router`` routes, and columns from which a
    wrapper reads other model outputs (``AdaptiveLayerLoss``). Every process makes the same number
    of forward passes, as DDP, FSDP and ZeRO-3 require.
    """
    merged, places = _merged(columns)
    if merged is None:
        return [model(column)["sentence_embedding"] for column in columns]
    mask = merged["attention_mask"]
    # padding on the left is kept, so a text that is padded there ends at the width of its column
    ends = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)
    lengths = ends.cpu().numpy()[np.concatenate(places)]
    order = np.argsort(lengths, kind="stable")
    lengths = np.maximum(lengths[order], 1)  # a text without a token
    bounds = cut(lengths, pass_overhead(mask.device))
    if world_size() > 1:
        # without gradients, other processes may not be here; one pass then suits every wrapper
        own = len(bounds) - 1
        fewest = -all_reduce_max(-own, mask.device) if torch.is_grad_enabled() else 1
        bounds = fewer(bounds, lengths, fewest)
    rows = torch.from_numpy(np.concatenate(places)[order]).to(mask.device)
    # the longest first, because the allocator can reuse their memory for shorter texts
    parts = [
        model(_rows(merged, rows[start:end], int(lengths[end - 1])))["sentence_embedding"]
        for start, end in reversed(list(pairwise(bounds)))
    ]
    back = torch.from_numpy(np.argsort(order)).to(mask.device)
    return list(torch.cat(parts[::-1])[back].split([len(place) for place in places]))


def _merged(
    columns: Sequence[dict[str, Any]],
) -> tuple[dict[str, Any] | None, list[NDArray[np.int64]]]:
    """Return all columns joined (None if impossible), and the places of each column's rows."""
    masks = [column.get("attention_mask") for column in columns]
    if len(columns) < 2 or not all(isinstance(mask, Tensor) and mask.ndim == 2 for mask in masks):
        return None, []
    sizes = [len(mask) for mask in masks if mask is not None]
    most = max(sizes)
    if min(sizes) < most:  # repeated rows fill the shorter columns, and are not embedded
        columns = [_filled(column, n, most) for column, n in zip(columns, sizes, strict=True)]
    places = [np.arange(size, dtype=np.int64) + i * most for i, size in enumerate(sizes)]
    return merge_feature_batches(list(columns)), places


def _filled(column: Mapping[str, Any], size: int, most: int) -> dict[str, Any]:
    """Return a column with its last row repeated until there are ``most``."""
    return {
        key: value[torch.arange(most, device=value.device).clamp(max=size - 1)]
        if isinstance(value, Tensor) and value.ndim and len(value) == size and key != _PROMPT
        else value
        for key, value in column.items()
    }


def _rows(merged: Mapping[str, Any], rows: Tensor, length: int) -> dict[str, Any]:
    """Return the inputs of some rows, with their tokens cut to a length."""
    width = merged["attention_mask"].shape[1]
    return {
        key: value
        if not isinstance(value, Tensor) or key == _PROMPT
        else value[rows, :length]
        if value.ndim > 1 and value.shape[1] == width
        else value[rows]
        for key, value in merged.items()
    }
