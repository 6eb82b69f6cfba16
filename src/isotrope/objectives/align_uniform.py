"""Alignment and uniformity: pull the positive, spread the other embeddings over the sphere."""

import math
from typing import Annotated, ClassVar, Literal

from torch import Tensor

from isotrope.core.hyper import Hyper, Paper, Preset
from isotrope.core.terms import Against, By, Terms
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.metric import CLOSE
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Softmax

_TABLE = "Nie et al., 2023, table 2 (with pairs=within)"

# 1/(2 t) is a temperature and has its bounds; Nie et al. (2023) try t from 2 to 10
InverseTemperature = Annotated[
    float, Hyper("t", "factor on squared distances, in exponents", at_least=1e-4, at_most=5e3)
]


def log_mean_energy(pairs: Pairs, t: float, against: Against) -> Tensor:
    """Return log mean e^{-t ||h_i - x_j||^2} over all anchors h_i and their negatives x_j.

    Args:
        pairs: Anchors h_i and negatives x_j, as unit vectors. Without negatives, the result is 0.
        t: Factor in the exponent.
        against: Views from which the negatives come: ``cross``, ``within`` or ``both``.
    """
    number = pairs.count(against).sum()
    # log 0 has no derivative: rows without a pair are masked before the sum is taken
    rows = pairs.logsumexp(1 / (2 * t), against).masked_fill(number == 0, 0.0)
    mean = rows.logsumexp(dim=0) - number.clamp_min(1).log() - 2 * t  # of ||h - x||^2 = 2 - 2 s
    return mean.masked_fill(number == 0, 0.0)


class AlignUniform(
    Objective,
    paper=Paper(
        "Understanding Contrastive Representation Learning through Alignment and Uniformity on "
        "the Hypersphere",
        "Wang and Isola, 2020",
        "Nie et al., 2023, eq. 2-4, 29 (for sentences)",
    ),
):
    r"""Weighted mean of alignment (positives are near) and uniformity (embeddings are spread out).

    Loss: L = (1 - lambda) mean_i ||h_i - h'_i||^alpha + lambda U, U = log mean_{i != j} e^{-t ||h_i
    - h'_j||^2}, where anchor h_i is a row of the first view and h'_j a row of the second. With
    pairs="within", U is computed for each view, from distances within this view, and averaged.

    Gradient: dissipation GD = 1; weight W_ij = 2 t lambda e^{2 t s_ij'} / sum_{k != l} e^{2 t
    s_kl'}; the pull of the positive is (1 - lambda) alpha ||h_i - h'_i||^{alpha - 2} / N. If alpha
    < 2, the pull grows without bound as h'_i approaches h_i, so the code does not pull at a
    distance below 0.01. With pairs="within", s_ij replaces s_ij', and h_j pushes h_i twice: once
    when h_i is the anchor, and once when h_j is. W_ij is the sum of the two pushes.

    Shapes: anchors n x d, positives n x d -> scalar (a batch statistic; no loss per anchor).

    Reference: Nie et al., 2023: eq. 2-4 and 29 (loss), eq. 8, 17, 27 and 30 (gradient), table 2
    (presets). Nie et al. print U across the views (pairs="cross"). Their code, like that of Wang
    and Isola, has one U for each view (pairs="within").

    Example:
        >>> import torch
        >>> float(AlignUniform(t=1.0, balance=0.5)(torch.eye(2), torch.eye(2)))
        -1.0
    """

    alpha: Annotated[float, Hyper("alpha", "exponent of the distance", above=0, at_most=10)] = 2.0
    t: InverseTemperature = 6.0
    balance: Annotated[
        float,
        Hyper("lambda", "weight of uniformity (alignment: 1 - lambda)", at_least=0, at_most=1),
    ] = 0.1
    pairs: Annotated[
        Literal["cross", "within"],
        Hyper("", "view of the negatives: the other view (cross) or the anchor's view (within)"),
    ] = "cross"

    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"alpha": 2.0, "t": 6.0, "balance": 0.1}, 1e-5, 64, _TABLE),
        "bert-large": Preset({"alpha": 2.0, "t": 6.0, "balance": 0.1}, 1e-5, 64, _TABLE),
        "roberta-base": Preset({"alpha": 2.0, "t": 6.0, "balance": 0.2}, 1e-5, 64, _TABLE),
        "roberta-large": Preset({"alpha": 2.0, "t": 6.0, "balance": 0.4}, 1e-5, 64, _TABLE),
    }
    batch_level = True
    takes_negatives = False
    invariances = frozenset({"rotation", "permutation", "scale", "view swap"})

    @property
    def coupling(self) -> Coupling:
        return "total" if self.pairs == "cross" else "batch"

    @property
    def two_directions(self) -> bool:
        return self.pairs == "within"

    def attraction(self, pairs: Pairs) -> Tensor:
        square = 2 - 2 * pairs.positive.clamp_max(self._closest)
        return (1 - self.balance) * square.pow(self.alpha / 2).mean()

    def repulsion(self, pairs: Pairs) -> Tensor:
        return self.balance * log_mean_energy(pairs, self.t, self.pairs)

    def components(self, pairs: Pairs) -> Terms:
        by: By = "cross" if self.pairs == "cross" else "anchors"
        shares = Softmax(temperature=1 / (2 * self.t), by=by, normaliser="batch")(pairs)
        square = 2 - 2 * pairs.positive.clamp_max(self._closest)
        steep = self.alpha * square.pow(self.alpha / 2 - 1) * (pairs.positive <= self._closest)
        return Terms(
            dissipation=pairs.positive.new_ones(len(steep)),
            weight=2 * self.t * self.balance * shares,
            pull=(1 - self.balance) / len(steep) * steep,
            against=self.pairs,
        )

    @property
    def _closest(self) -> float:
        """The cosine above which a positive is not pulled."""
        if self.alpha == 2:
            return math.inf
        return 1 - CLOSE if self.alpha < 2 else 1.0
