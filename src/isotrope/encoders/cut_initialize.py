"""Cut-initialization: divides the initial weights by a constant, to shorten the embeddings."""

import math
from typing import TYPE_CHECKING, Literal

from isotrope.core.errors import InputError

if TYPE_CHECKING:
    from torch import nn

TURN = 0.02
"""Angle (radians): if the first step turned the weights further, a cut did harm (docs/LOG.md)."""


def cut_initialize(
    module: "nn.Module", c: float, *, what: Literal["weights", "all"] = "weights"
) -> int:
    """Divide the initial weights of ``module`` by ``c``, in place.

    Smaller initial weights shorten the first embeddings. The gradient of a cosine is large for
    short embeddings, and shrinks as training makes embeddings longer. If a normalisation follows
    the weights, smaller weights only raise the effective learning rate.

    This is experimental. In our trainings, a cut helps with a thirtieth of the recipe's learning
    rate, and hurts with the full rate (docs/LOG.md).

    Args:
        module: Encoder or head, for text or images, before it is copied to a momentum encoder.
        c: The cut-constant, above 0. The paper uses 3 for contrastive and 9 for other methods.
        what: ``weights`` divides the matrices and kernels of linear, convolutional and embedding
            layers, as in the paper. ``all`` divides every parameter, including biases, norms,
            tokens and positions, as in the authors' code. Buffers do not change.

    Returns: The number of divided tensors. A tensor that several layers share counts once.

    Reference:
        Draganov et al., 2024, section 4; table 3 has c for each method.
    """
    if not (math.isfinite(c) and c > 0):
        raise InputError(f"give a cut-constant above 0, a finite number; found {c}")
    if what not in ("weights", "all"):
        raise InputError(f"set `what` to 'weights' or 'all'; found {what!r}")
    # named_parameters() yields a shared tensor once
    chosen = [
        parameter
        for name, parameter in module.named_parameters()
        if what == "all" or (name.rpartition(".")[2].endswith("weight") and parameter.ndim > 1)
    ]
    for parameter in chosen:
        parameter.data.div_(c)
    return len(chosen)


def first_turn(module: "nn.Module", learning_rate: float) -> float:
    """Return the angle (radians) by which a gradient descent step turns the weights of ``module``.

    If a normalisation follows the weights, only their direction matters. The gradient is orthogonal
    to the weights, so a step turns them by atan(learning_rate ||gradient|| / ||weights||). Dividing
    the weights by c multiplies their gradient by c, so a small angle grows by the factor c^2.
    """
    matrices = [p for p in module.parameters() if p.ndim > 1 and p.grad is not None]
    squares = [
        math.fsum(float(x.detach().float().square().sum()) for x in side)
        for side in ([p.grad for p in matrices if p.grad is not None], matrices)
    ]
    return math.atan2(learning_rate * math.sqrt(squares[0]), math.sqrt(squares[1]))
