"""VICReg: keeps the variance of each coordinate and removes the covariances."""

from typing import Annotated, Literal

import torch
from torch import Tensor

from isotrope.core.errors import Overflow
from isotrope.core.hyper import Hyper, Paper
from isotrope.core.moments import moments_within
from isotrope.core.terms import Terms
from isotrope.core.views import Views
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import products


class VICReg(
    Objective,
    paper=Paper(
        "VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning",
        "Bardes et al., 2022",
        "Li et al., 2024, section 4, table 2",
    ),
):
    r"""Pull positives, keep each coordinate's standard deviation above gamma, remove covariances.

    Loss: L = lambda sum_i ||h_i - h'_i||^2 / N + nu1 (v(H) + v(H')) + nu2 (c(H) + c(H')). Li et
    al. (2024) write v for covariances and c for standard deviations; Bardes et al. do the reverse.
    Let C = sum_i y_i y_i^T / (N - 1) be the covariance of the centred rows y_i = h_i - mean. Then
    v = (1/D) sum_{k != l} C_kl^2 penalises covariances, and c = (1/D) sum_k max(0, gamma -
    sigma_k), sigma_k = sqrt(C_kk + epsilon), penalises small standard deviations. lambda is
    ``sim_coeff``, nu1 ``cov_coeff`` and nu2 ``var_coeff``.

    Gradient: dissipation GD = 1; weight W_ij = 4 nu1 y_i.y_j / (D (N-1)^2), which may be negative;
    the pull is 2 lambda / N. Two more parts complete the gradient. ``Terms.extra`` takes the
    variances C_kk out of sum_j W_ij h_j and adds the gradient of c; coordinate k of ``extra`` is
    -(4 nu1 C_kk + nu2 1[sigma_k < gamma] / sigma_k) y_ik / (D (N-1)). The residual is (2 lambda / N
    + W_ii) h_i. Eq. 11 of Li et al. (2024) has neither part and does not centre the rows: eq. 11 is
    the gradient of ``VICRegGrad``. GD, W and R are defined only with space="sphere".

    Shapes: anchors n x d, positives n x d -> scalar (a batch statistic; no loss per anchor).

    Reference: Bardes et al., 2022, eq. 1-6. The default coefficients are from the paper. Rows
    are l2-normalised as in Li et al., 2024, section 4, unless space="raw". The code of Bardes et
    al. divides the first term by D and averages c over the two views. For their loss, set
    sim_coeff=25/D and var_coeff=12.5. Li et al. (2024) use sim_coeff=1 and epsilon=0.

    Example:
        >>> import torch
        >>> objective = VICReg(sim_coeff=1.0, cov_coeff=2.0, var_coeff=0.0)
        >>> float(objective(torch.eye(2), torch.eye(2)))
        1.0
    """

    sim_coeff: Annotated[
        float, Hyper("lambda", "weight of the positives' squared distance", at_least=0)
    ] = 25.0
    var_coeff: Annotated[
        float, Hyper("nu2", "weight of the penalty on small standard deviations", at_least=0)
    ] = 25.0
    cov_coeff: Annotated[float, Hyper("nu1", "weight of the squared covariances", at_least=0)] = 1.0
    gamma: Annotated[
        float,
        Hyper("gamma", "standard deviation below which a coordinate is penalised", at_least=0),
    ] = 1.0
    epsilon: Annotated[
        float, Hyper("epsilon", "number added to the variance before the square root", at_least=0)
    ] = 1e-4
    space: Annotated[
        Literal["sphere", "raw"], Hyper("", "sphere: rows get length 1; raw: rows are kept")
    ] = "sphere"

    batch_level = True
    pairwise = False
    takes_negatives = False

    @property
    def invariances(self) -> frozenset[str]:
        both = frozenset({"permutation", "view swap"})
        return both | {"scale"} if self.space == "sphere" else both

    def prepare(self, views: Views) -> Views:
        """Check ``views`` and return them.

        Raises:
            Overflow: ``space="raw"`` and the embeddings are in float16.
        """
        if self.space == "raw" and views.anchors.dtype == torch.float16:
            raise Overflow(
                "pass float32 or bfloat16, or choose space='sphere': without normalisation, the "
                "gradient grows with the third power of the norm and overflows float16 at 65504"
            )
        return super().prepare(views)

    def formula(self, pairs: Pairs) -> Tensor:
        apart = self.repulsion(pairs)  # first, because the backward pass frees the last term first
        return self.attraction(pairs) + apart

    def attraction(self, pairs: Pairs) -> Tensor:
        views = pairs.views
        apart = (views.anchors - views.own).flatten()
        return apart.dot(apart) * (self.sim_coeff / views.anchors.shape[0])

    def repulsion(self, pairs: Pairs) -> Tensor:
        return self._spread(pairs.views.anchors) + self._spread(pairs.views.own)

    def _spread(self, h: Tensor) -> Tensor:
        """Return nu1 v + nu2 c for one view."""
        n, d = h.shape
        variance, squares = moments_within(h, 1 / (n - 1))
        covariances = squares - variance.dot(variance)
        shortfall = (self.gamma - self._deviation(variance)).clamp_min(0).sum()
        return covariances * (self.cov_coeff / d) + shortfall * (self.var_coeff / d)

    def _deviation(self, variance: Tensor) -> Tensor:
        """Return D standard deviations; at variance 0, value and derivative are both 0."""
        variance = variance + self.epsilon
        if self.epsilon > 0:
            return variance.sqrt()
        return variance.where(variance > 0, 1.0).sqrt() * (variance > 0)

    def components(self, pairs: Pairs) -> Terms:
        if self.space != "sphere":
            return super().components(pairs)
        views, (n, d) = pairs.views, pairs.views.anchors.shape
        x = views.anchors - views.anchors.mean(dim=0)
        factor = 4 * self.cov_coeff / (d * (n - 1) ** 2)
        radial = factor * x.square().sum(dim=1) + 2 * self.sim_coeff / n
        variance = x.square().sum(dim=0) / (n - 1)
        sigma = self._deviation(variance)
        below_gamma = (sigma < self.gamma) & (sigma > 0)
        std_push = self.var_coeff * (below_gamma / sigma.where(sigma > 0, 1.0))
        decorrelation = 4 * self.cov_coeff * variance
        return Terms(
            dissipation=torch.ones_like(radial),
            weight=factor * products(pairs, x, x, against="within"),
            pull=torch.full_like(radial, 2 * self.sim_coeff / n),
            against="within",
            residual=radial[:, None] * views.anchors,
            extra=-(decorrelation + std_push) * x / (d * (n - 1)),
        )
