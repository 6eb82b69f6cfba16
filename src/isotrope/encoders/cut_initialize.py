"""Cut-initialization: start training from smaller weights, and so from shorter embeddings."""

import math
from typing import TYPE_CHECKING, Literal

from isotrope.core.errors import InputError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["cut_initialize"]


def cut_initialize(
    module: "nn.Module", c: float, *, what: Literal["weights", "all"] = "weights"
) -> int:
    """Divide the initial weights of ``module`` by ``c``, in place.

    The gradient of a cosine shrinks as embeddings grow, and training makes them grow; smaller
    initial weights make the first embeddings short, where the gradient is large. In a layer that
    is followed by a normalisation only the effective learning rate changes; the other layers
    shorten the embeddings.

    Args:
        module: an encoder or its heads, of text or images, before any momentum copy is made.
        c: the cut-constant, above 0. The paper takes 3 for contrastive and 9 for
            non-contrastive methods; below 1 makes the weights larger, 1 changes nothing.
        what: ``weights`` divides each layer's weights, as the paper says: the matrices and kernels
            of linear, convolutional and embedding layers. ``all`` divides every parameter, as its
            authors' released code does: biases, the scale and shift of norms, tokens and
            positions too. Buffers are left alone.

    Returns:
        How many tensors were divided; one that several layers share counts, and is divided, once.

    Raises:
        InputError: a constant that is not a finite number above 0, or another ``what``.

    Reference:
        Draganov et al., 2024, section 4; c for each method: table 3.
    """
    if not (math.isfinite(c) and c > 0):
        raise InputError(f"the cut-constant must be a finite number above 0; found {c}")
    if what not in ("weights", "all"):
        raise InputError(f"`what` must be 'weights' or 'all'; found {what!r}")
    # named_parameters() gives a shared tensor once
    chosen = [
        parameter
        for name, parameter in module.named_parameters()
        if what == "all" or (name.rpartition(".")[2].endswith("weight") and parameter.ndim > 1)
    ]
    for parameter in chosen:
        parameter.data.div_(c)
    return len(chosen)
