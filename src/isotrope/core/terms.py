"""The Terms record: gradient dissipation, weight and ratio of an objective's gradient."""

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
    2024, section 2.3, without extra and residual). Here h'_i is the positive of anchor i, and
    ``against`` says which embeddings the x_j are.

    Attributes:
        dissipation: GD of each anchor, n values.
        weight: Weights W, n x c, 0 for excluded entries (the anchor, its positive, its group).
        pull: Pull sum_j W_ij R_ij of each anchor, n values; n x d if it differs by coordinate.
        against: The embeddings x_j, one for each column of ``weight``. ``cross`` means the m
            embeddings of the other view, ``within`` the n embeddings of the same view, and ``both``
            the positives and then the anchors. Any q additional negatives follow.
        scale: Factor for the gradient of the whole objective: ``scale * assemble(terms, views)``.
        residual: The rest of the gradient, n x d: parts along the anchor, and the gradient of other
            anchors' losses. None if there is no rest. Objectives made by ``modify`` have no rest,
            because they hold everything but the anchor constant.
        extra: Additional push of an anchor's own loss, n x d, as from the standard deviations of
            VICReg. It stays when other components are replaced. None if there is no such push.
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
        """Ratio R of each anchor, the mean of R_ij weighted by W_ij; None if ``pull`` is n x d."""
        if self.pull.ndim != 1:
            return None
        mass = self.mass
        return (self.pull / mass.where(mass != 0, 1.0)).where(mass != 0, 0.0)

    @property
    def pulls(self) -> Tensor:
        """The pull as a matrix: n x d, or n x 1 if it is the same in all coordinates."""
        return self.pull if self.pull.ndim == 2 else self.pull[:, None]

    def detached(self) -> "Terms":
        """The same numbers without autograd history and without forward-mode derivatives."""
        return replace(
            self,
            dissipation=self.dissipation.detach(),
            weight=self.weight.detach(),
            pull=self.pull.detach(),
            residual=None if self.residual is None else self.residual.detach(),
            extra=None if self.extra is None else self.extra.detach(),
        )
