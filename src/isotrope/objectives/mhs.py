"""Maximum hyperspherical separation: alignment minus the distance to the nearest negative."""

import dataclasses
from typing import Annotated, ClassVar

from torch import Tensor

from isotrope.core.hyper import Hyper, Paper, Preset
from isotrope.core.terms import Terms
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.authors_code import Variant
from isotrope.paradigm.metric import dissimilarity, slope
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Hardest

_SCRIPTS = "Li et al., 2024, table 3, released scripts"


class MHS(
    Objective,
    paper=Paper(
        "Learning with Hyperspherical Uniformity",
        "Liu et al., 2021; for sentences: Li et al., 2024",
        "Li et al., 2024, appendix D.2, eq. 7, 9, table 2",
    ),
):
    r"""Pull the positive, and push away the nearest other anchor.

    Loss: L_i = ||h_i - h'_i||^2 - nu min_{j != i} ||h_i - h_j||, where h_i is an anchor, h'_i its
    positive, h_j another anchor, and nu is ``weight``. h_j is held constant.

    Gradient: dissipation GD = 1; weight W_ij = nu / ||h_i - h_j|| for the nearest h_j (0 if h_j is
    closer than 0.01), and 0 for all others; ratio R_i = 2 ||h_i - h_j|| / nu. Table 2 of Li et al.
    (2024) prints R_i / N: the paper's L_i contains the mean of ||h_k - h'_k||^2 over all N pairs,
    so the pull on h_i is divided by N.

    Shapes: anchors n x d, positives n x d -> scalar (mean over anchors).

    Reference: Li et al., 2024, section 4 and table 2, upper half. The released code
    (variant="released") takes the nearest row h'_j of the other view. Its distance is d_i = (||h_i
    - h'_j||^2 + 1e-4)^{1/2}. The row also pushes below 0.01. Both views serve as anchors: L =
    mean_i (||h_i - h'_i||^2 - nu d_i - nu d'_i), where d'_i is the distance from h'_i to the
    nearest row of the first view. Then W_ij = nu / d_i for this row, and R_i = 2 d_i / nu.

    Example:
        >>> import torch
        >>> round(float(MHS()(torch.eye(2), torch.eye(2))), 6)
        -1.414214
    """

    weight: Annotated[float, Hyper("nu", "weight of the nearest row's distance", at_least=0)] = 1.0
    variant: Variant = "paper"

    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"weight": 1.0, "variant": "released"}, 5e-6, 128, _SCRIPTS),
        "roberta-base": Preset({"weight": 1.0, "variant": "released"}, 1e-6, 512, _SCRIPTS),
    }
    takes_negatives = False
    holds = "negatives"

    @property
    def coupling(self) -> Coupling:
        return "none" if self.variant == "released" else "batch"

    @property
    def two_directions(self) -> bool:
        return self.variant == "released"

    def attraction(self, pairs: Pairs) -> Tensor:
        return 2 - 2 * pairs.positive

    def repulsion(self, pairs: Pairs) -> Tensor:
        nearest = self._others(pairs).hardest()
        none = nearest.isinf()  # an anchor without negatives is not pushed
        distance, _ = self._distance(nearest.masked_fill(none, 0.0))
        push = -self.weight * distance.masked_fill(none, 0.0)
        return 2 * push if self.two_directions else push  # so that the mean of both is the sum

    def components(self, pairs: Pairs) -> Terms:
        hardest = Hardest(by="anchors" if self.variant == "paper" else "cross")
        weight = hardest(pairs)
        _, steep = self._distance(pairs.hardest(hardest.against))
        return Terms(
            dissipation=steep.new_ones(len(steep)),
            weight=weight * (self.weight * steep[:, None]),
            pull=steep.new_full((len(steep),), 2.0),
            against=hardest.against,
            scale=1 / len(steep),
        )

    def _others(self, pairs: Pairs) -> Pairs:
        """The anchors, and the vectors (held constant) from which the loss separates them."""
        views = pairs.views
        if self.variant == "released":
            constant = dataclasses.replace(views, positives=views.positives.detach())
        else:
            constant = dataclasses.replace(
                views, positives=views.anchors.detach(), offset=0, groups=views.own_groups
            )
        return pairs.of(constant)

    def _distance(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """The distance and its slope -d distance / d similarity."""
        if self.variant == "paper":
            return dissimilarity(similarity, "distance"), slope(similarity, "distance")
        distance = (2 - 2 * similarity + 1e-4).sqrt()
        return distance, 1 / distance
