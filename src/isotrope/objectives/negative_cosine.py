"""Negative cosine: pulls the positive and pushes nothing, as in BYOL and SimSiam."""

import torch
from torch import Tensor

from isotrope.core.hyper import Paper
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import nothing


class NegativeCosine(
    Objective,
    paper=Paper(
        "Bootstrap Your Own Latent; Exploring Simple Siamese Representation Learning",
        "Grill et al., 2020; Chen and He, 2021",
        "Draganov et al., 2024, proposition 3.1",
    ),
):
    r"""Minus the cosine of each pair; only the training method prevents collapse.

    The training methods BYOL and SimSiam add a predictor and hold the targets constant. BYOL takes
    the targets from a moving average of the encoder's weights.

    Loss: L_i = -h_i.h'_i, for prediction h_i and target h'_i. The loss of BYOL, ||h_i - h'_i||^2 =
    2 + 2 L_i, has twice this gradient.

    Gradient: dissipation GD = 1; weight W = 0; the pull of the positive is 1. With respect to the
    embedding z_i before it is scaled to length 1, the gradient is -(I - h_i h_i^T) h'_i / ||z_i||.
    Its norm is sin(theta_ii') / ||z_i||.

    Shapes: anchors n x d (predictions), positives n x d (targets) -> scalar (mean over anchors).

    Reference: Draganov et al., 2024, proposition 3.1, which prints the vector that increases the
    cosine; the gradient of the loss is minus that vector.

    Example:
        >>> import torch
        >>> float(NegativeCosine()(torch.eye(2), torch.eye(2)))
        -1.0
    """

    coupling = "none"
    pairwise = False
    takes_negatives = False
    least_rows = 1
    invariances = frozenset({"rotation", "permutation", "scale", "view swap"})

    def formula(self, pairs: Pairs) -> Tensor:
        return -pairs.positive

    def components(self, pairs: Pairs) -> Terms:
        ones = torch.ones_like(pairs.positive)
        return Terms(dissipation=ones, weight=nothing(pairs), pull=ones, scale=1 / len(ones))
