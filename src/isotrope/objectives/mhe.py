"""Minimum hyperspherical energy: alignment, plus the log of the energy of the anchors."""

from typing import Annotated, ClassVar

from torch import Tensor

from isotrope.core.hyper import Hyper, Paper, Preset
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.objectives.align_uniform import InverseTemperature, log_mean_energy
from isotrope.paradigm.authors_code import Variant
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Energy

_SCRIPTS = "Li et al., 2024, table 3, released scripts"


class MHE(
    Objective,
    paper=Paper(
        "Learning with Hyperspherical Uniformity",
        "Liu et al., 2021; for sentences: Li et al., 2024",
        "Li et al., 2024, appendix D.2, eq. 7, 8, table 2",
    ),
):
    r"""Pull the positive, and spread the anchors over the sphere by lowering their energy U.

    Loss: L = mean_i ||h_i - h'_i||^2 + nu U, U = log( 2/(N(N-1)) sum_{k<l} e^{-t ||h_k - h_l||^2}),
    where h_i is one of N anchors, h'_i its positive, and nu is ``weight``.

    Gradient: dissipation GD = 1; weight W_ij = 2 t nu e^{2t h_i.h_j} / sum_{k<l} e^{2t h_k.h_l};
    ratio R_i = sum_{k<l} e^{2t h_k.h_l} / (t nu N sum_{k != i} e^{2t h_i.h_k}). The pull, R_i times
    the sum of W_ij over j, is 2/N. U has one term for the pair of rows i and j. W_ij is the whole
    push of this term on h_i.

    Shapes: anchors n x d, positives n x d -> scalar (a batch statistic; no loss per anchor).

    Reference: Li et al., 2024, section 4 and table 2, upper half, with t = 1. With
    variant="released", as in the authors' code, L contains the energies of both views; each is log
    sum_{k<l} e^{t h_k.h_l}. This exponent has no factor 2, so t/2 replaces t in W and R; GD is
    still 1. The authors ran the code with nu = 10.

    Example:
        >>> import torch
        >>> float(MHE()(torch.eye(2), torch.eye(2)))
        -2.0
    """

    weight: Annotated[float, Hyper("nu", "weight of the energy U", at_least=0)] = 1.0
    t: InverseTemperature = 1.0
    variant: Variant = "paper"

    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"weight": 10.0, "variant": "released"}, 1e-5, 128, _SCRIPTS),
        "roberta-base": Preset({"weight": 10.0, "variant": "released"}, 1e-6, 512, _SCRIPTS),
    }
    batch_level = True
    takes_negatives = False

    @property
    def two_directions(self) -> bool:
        return self.variant == "released"

    def attraction(self, pairs: Pairs) -> Tensor:
        return (2 - 2 * pairs.positive).mean()

    def repulsion(self, pairs: Pairs) -> Tensor:
        if self.variant == "paper":
            return self.weight * log_mean_energy(pairs, self.t, "within")
        number = pairs.count("within").sum() / 2
        constants = (self.t + number.log()).masked_fill(number == 0, 0.0)
        energy = log_mean_energy(pairs, self.t / 2, "within") + constants
        return 2 * self.weight * energy  # so that the mean of both directions is the sum

    def components(self, pairs: Pairs) -> Terms:
        n = len(pairs.views.anchors)
        temperature = 1 / (2 * self.t) if self.variant == "paper" else 1 / self.t
        return Terms(
            dissipation=pairs.positive.new_ones(n),
            weight=self.weight * Energy(temperature=temperature)(pairs),
            pull=pairs.positive.new_full((n,), 2 / n),
            against="within",
        )
