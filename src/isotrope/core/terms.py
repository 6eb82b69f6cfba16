"""Defines :class:`Terms`: gradient dissipation, weight and ratio of an objective's gradient."""

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

Against = Literal["cross", "within", "both"]

# the similarity on which a weight depends: h_i.h'_j, h_i.h_j, h'_i.h'_j, or the first two
By = Literal["cross", "anchors", "positives", "both"]

# the vectors that push, for each kind of similarity
AGAINST: dict[By, Against] = {
    "cross": "cross",
    "anchors": "within",
    "positives": "within",
    "both": "both",
}


@dataclass(frozen=True)
class Terms:
    """Gradient dissipation GD, weights W and ratio R of every anchor of a batch.

    The gradient of anchor i's loss with respect to the *normalised* anchor, with all else constant,
    is ``dissipation_i * (sum_j weight_ij x_j - pull_i h'_i + extra_i) + residual_i`` (Li et al.,
    2024, section 2.3, without extra and residual). Here h'_i is the positive of anchor i. The x_j
    are the embeddings that ``against`` names.

    Attributes:
        dissipation: GD of each anchor, n values.
        weight: Weights W, n x c. W_ij is 0 if x_j is not a negative of anchor i: the anchor itself,
            its positive, or an embedding of its group.
        pull: Pull sum_j W_ij R_ij of each anchor, n values; n x d if it differs by coordinate.
        against: The embeddings x_j, one for each column of ``weight``: ``"cross"``, the other view;
            ``"within"``, the same view; ``"both"``, the positives, then the anchors. Additional
            negatives of the batch come last.
        scale: Factor of ``assemble(terms, views)`` in the gradient of the whole objective.
        residual: The rest of the gradient, n x d: parts along the anchor, and the gradient of other
            anchors' losses. None if there is no rest, as for objectives that ``modify`` made.
        extra: Additional push in the loss of the anchor, n x d, such as the push from VICReg's
            standard deviations. None if there is no such push.
    """

    dissipation: Tensor
    weight: Tensor
    pull: Tensor
    against: Against = "cross"
    scale: float = 1.0
    residual: Tensor | None = None
    extra: Tensor | None = None

    @property
    def mass(self) -> Tensor:
        """The sum of each anchor's weights (n values)."""
        return self.weight.sum(dim=1)

    @property
    def ratio(self) -> Tensor | None:
        """Ratio R of each anchor: the mean of R_ij, weighted by W_ij. None if ``pull`` is n x d."""
        if self.pull.ndim != 1:
            return None
        mass = self.mass
        return (self.pull / mass.where(mass != 0, 1.0)).where(mass != 0, 0.0)

    @property
    def pulls(self) -> Tensor:
        """``pull`` as a matrix: n x d, or n x 1 if it is the same in all coordinates."""
        return self.pull if self.pull.ndim == 2 else self.pull[:, None]

    def detached(self) -> "Terms":
        """A copy without autograd history; no gradient flows through the copy."""
        parts = {name: x.detach() for name, x in vars(self).items() if hasattr(x, "detach")}
        return replace(self, **parts)
