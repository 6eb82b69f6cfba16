"""Distance gaps: how much farther from an anchor its negatives are than its positive."""

import torch
from torch import Tensor

from isotrope.core.rounding import WITHOUT_FLOAT64
from isotrope.core.views import unit


def distance_gap(anchors: Tensor, positives: Tensor) -> Tensor:
    """Return mean_i (mean_{j!=i} ||h_i - h'_j|| - ||h_i - h'_i||) of the normalised rows.

    Nie et al. (2023) plot this gap as d_ij in figure 3. The gap lies in [-2, 2]. If it is below 0,
    negatives are on average nearer to an anchor than its positive.

    Args:
        anchors: Embeddings of one view, n x d, n >= 2, of any norm.
        positives: Embeddings of the other view, n x d. Other anchors' positives are the negatives.

    Example:
        >>> import torch
        >>> round(float(distance_gap(torch.eye(2), torch.eye(2))), 6)
        1.414214
    """
    return gaps(anchors, positives)[0].mean()


def margin_gap(anchors: Tensor, positives: Tensor) -> Tensor:
    """Return mean_i |rho(h_i, h'_i) - min_{j!=i} rho(h_i, h'_j)| of the normalised rows.

    Here rho is the Euclidean distance, as in the figures of Nie et al. (2023), who call this gap
    d_ij in section 4.3. Objectives with a margin act on this gap. The gap has no sign: if the
    nearest negative is nearer than the positive by 0.2, or farther by 0.2, the gap is 0.2.
    :func:`distance_gap` has the arguments.

    Example:
        >>> import torch
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
        >>> round(float(margin_gap(x, x)), 6)
        1.414214
    """
    return gaps(anchors, positives)[1].mean()


def gaps(anchors: Tensor, positives: Tensor, *, block: int = 1024) -> tuple[Tensor, Tensor]:
    """Return two float64 tensors (n): the distance gap and the margin gap of every anchor.

    Rows are compared in blocks, so memory is O(block x n). :func:`distance_gap` has the arguments.
    """
    n = len(anchors)
    if n < 2 or anchors.shape != positives.shape:
        raise ValueError(
            "give at least two pairs, with anchors and positives of one shape; found "
            f"{tuple(anchors.shape)} and {tuple(positives.shape)}"
        )
    if anchors.device.type in WITHOUT_FLOAT64:
        anchors, positives = anchors.cpu(), positives.cpu()
    h, other = unit(anchors.double()), unit(positives.double())
    to_positive = torch.linalg.vector_norm(h - other, dim=1)
    # one product in float64: squares are exact to 1e-16, and therefore distances to 1e-8
    squares, others = h.square().sum(dim=1, keepdim=True), other.square().sum(dim=1)
    means, nearest = [], []
    for start in range(0, n, block):
        rows = slice(start, start + block)
        square = squares[rows] + others - 2 * h[rows] @ other.T
        distance = square.clamp_min(0).sqrt()
        itself = torch.arange(n, device=h.device) == torch.arange(n, device=h.device)[rows, None]
        means.append(distance.masked_fill(itself, 0).sum(dim=1) / (n - 1))
        nearest.append(distance.masked_fill(itself, torch.inf).amin(dim=1))
    return torch.cat(means) - to_positive, (to_positive - torch.cat(nearest)).abs()
