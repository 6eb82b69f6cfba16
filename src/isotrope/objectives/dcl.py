"""DCL, DCLW and DCLPlus: InfoNCE without the positive in the denominator."""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, Paper, Preset, Temperature
from isotrope.core.terms import Terms
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.assemble import received
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.parts import Softmax, active

Negatives = Literal["cross", "both"]

_VIEWS = Hyper("", "view of the negatives: only the other view (cross), or both views (both)")
_TABLE = "Nie et al., 2023, table 2"


def _repulsion(pairs: Pairs, temperature: float, views: Negatives) -> Tensor:
    lse = pairs.logsumexp(temperature, views)
    return lse.masked_fill(lse == -torch.inf, 0.0)  # without negatives only the pull is left


def _terms(pairs: Pairs, temperature: float, views: Negatives, pull: Tensor) -> Terms:
    terms = Terms(
        dissipation=torch.ones_like(pull),
        weight=Softmax(temperature=temperature, by=views)(pairs) / temperature,
        pull=pull / temperature,
        against=views,
        scale=1 / len(pairs.views.anchors),
    )
    if views == "cross":
        return terms
    return replace(terms, residual=received(terms, pairs.views, "anchors"))


class DCL(
    Objective,
    paper=Paper(
        "Decoupled Contrastive Learning", "Yeh et al., 2021", "Nie et al., 2023, eq. 5, 43"
    ),
):
    r"""InfoNCE without the positive in the denominator, so that the gradient never fades.

    Loss: L_i = -s_ii'/tau + log sum_{j != i} e^{s_ij'/tau}, where s_ij' is the cosine of anchor i
    and positive j, and tau is the temperature. With ``views="both"``, all sums over j or k include
    the 2N - 2 negatives of both views.

    Gradient: dissipation GD = 1; weight W_ij = e^{s_ij'/tau} / (tau sum_{k != i} e^{s_ik'/tau});
    ratio R = 1. An anchor without negatives is only pulled, so R is not defined. With
    ``views="both"``, h_i is also a negative of the other anchors, so their losses have a gradient
    on h_i too. GD, W and R do not include this gradient (the residual). Eq. 5, 10 and 43 of Nie
    et al. (2023, errata E13) have the division by tau outside the exponential; it belongs inside.
    Yeh et al. (2021) and Manna et al. (2023, tau = 0.1) train ``DCL(views="both").symmetric()``.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Nie et al., 2023, eq. 5 and 43; the default temperature was tuned for BERT-base
    (table 2).

    Example:
        >>> import torch
        >>> float(DCL(temperature=0.5)(torch.eye(2), torch.eye(2)))
        -2.0
    """

    temperature: Temperature = 0.03
    views: Annotated[Negatives, _VIEWS] = "cross"

    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"temperature": 0.03}, 1e-5, 64, _TABLE),
        "bert-large": Preset({"temperature": 0.01}, 5e-5, 64, _TABLE),
        "roberta-base": Preset({"temperature": 0.02}, 1e-5, 64, _TABLE),
        "roberta-large": Preset({"temperature": 0.02}, 1e-5, 64, _TABLE),
    }

    @property
    def coupling(self) -> Coupling:
        return "none" if self.views == "cross" else "batch"

    def components(self, pairs: Pairs) -> Terms:
        return _terms(pairs, self.temperature, self.views, torch.ones_like(pairs.positive))

    def attraction(self, pairs: Pairs) -> Tensor:
        return -pairs.positive / self.temperature

    def repulsion(self, pairs: Pairs) -> Tensor:
        return _repulsion(pairs, self.temperature, self.views)


class DCLW(
    Objective,
    paper=Paper(
        "Decoupled Contrastive Learning",
        "Yeh et al., 2021",
        "Yeh et al., 2021; Manna et al., 2023, section 3.2",
    ),
):
    r"""DCL with von Mises-Fisher weights: a distant positive has a larger weight.

    Loss: L_i = -w_i s_ii'/tau + log sum_{j != i} e^{s_ij'/tau}, w_i = 2 - N p_i,
    p_i = e^{s_ii'/sigma} / sum_k e^{s_kk'/sigma}; the mean of w is 1. s_ij' is the cosine of anchor
    i and positive j, and tau is the temperature.

    Gradient: dissipation GD = 1; weight W_ij = e^{s_ij'/tau} / (tau sum_{k != i} e^{s_ik'/tau});
    ratio R_i = w_i - N p_i (s_ii' - sum_k p_k s_kk') / sigma. As in the paper, the gradient also
    flows through the weights. Every w_k depends on s_ii'. Therefore R_i is -tau times the
    derivative of the sum of all losses with respect to s_ii'. If a positive is much closer to its
    anchor than other positives are to theirs, R_i is negative: the positive is pushed away. With
    ``weights="constant"``, as in the library ``lightly``, R_i = w_i. With ``views="both"``, h_i is
    also a negative of the other anchors, so their losses have a gradient on h_i too. GD, W and R do
    not include this gradient (the residual).

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Yeh et al., 2021. They train ``DCLW(views="both").symmetric()``: anchors and
    negatives are from both views. Their sigma is the default here. The default temperature is from
    Manna et al. (2023, section 3.2).

    Example:
        >>> import torch
        >>> h = torch.eye(2)
        >>> round(float(DCLW(temperature=1.0, sigma=1.0)(h, h[[1, 1]])), 6)
        0.231059
    """

    temperature: Temperature = 0.1
    sigma: Annotated[
        float, Hyper("sigma", "temperature of the softmax in the positives' weights", at_least=1e-4)
    ] = 0.5
    views: Annotated[Negatives, _VIEWS] = "cross"
    weights: Annotated[
        Literal["differentiated", "constant"],
        Hyper("", "whether a gradient flows through w (differentiated, as in the paper) or not"),
    ] = "differentiated"

    @property
    def coupling(self) -> Coupling:
        return "positives" if self.views == "cross" else "batch"

    def components(self, pairs: Pairs) -> Terms:
        s, p, ratio = pairs.positive, self._shares(pairs), self.positive_weights(pairs)
        if self.weights == "differentiated":
            ratio = ratio - len(s) * p * (s - (p * s).sum()) / self.sigma
        return _terms(pairs, self.temperature, self.views, ratio)

    def positive_weights(self, pairs: Pairs) -> Tensor:
        """Return the n weights w of the positives; their mean is 1."""
        shares = self._shares(pairs)
        if self.weights == "constant":
            shares = shares.detach()
        return 2 - len(shares) * shares

    def _shares(self, pairs: Pairs) -> Tensor:
        return (pairs.positive / self.sigma).softmax(dim=0)

    def attraction(self, pairs: Pairs) -> Tensor:
        return -self.positive_weights(pairs) * pairs.positive / self.temperature

    def repulsion(self, pairs: Pairs) -> Tensor:
        return _repulsion(pairs, self.temperature, self.views)


class DCLPlus(
    Objective,
    paper=Paper(
        "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of "
        "Sentence Representations",
        "Nie et al., 2023",
        "Nie et al., 2023, eq. 10",
    ),
):
    r"""DCL cut off at 0: an anchor whose DCL loss is negative has no gradient.

    Loss: L_i = max(0, -s_ii'/tau + log sum_{j != i} e^{s_ij'/tau}), where s_ij' is the cosine of
    anchor i and positive j, and tau is the temperature.

    Gradient: dissipation GD_i = 1[L_i > 0]; weight W_ij = e^{s_ij'/tau} / (tau sum_{k != i}
    e^{s_ik'/tau}); ratio R = 1. GD_i is 1 for exactly those anchors whose GD_i would be above 1/2
    with InfoNCE at the same temperature.

    The loss is the mean over all anchors, including those with GD_i = 0. In eq. 11, the norm of the
    attracting gradient, Nie et al. (2023) print sin theta_ij' for sin theta_ii' (errata E14).

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Nie et al., 2023, eq. 10. By eq. 12, an anchor's InfoNCE loss is at most log 2 + L_i.
    The default temperature was tuned for BERT-base (table 2).

    Example:
        >>> import torch
        >>> float(DCLPlus(temperature=0.5)(torch.eye(2), torch.eye(2).flip(0)))
        2.0
    """

    temperature: Temperature = 0.17

    coupling = "none"
    presets: ClassVar[dict[str, Preset]] = {
        "bert-base": Preset({"temperature": 0.17}, 3e-5, 64, _TABLE),
        "bert-large": Preset({"temperature": 0.18}, 5e-5, 64, _TABLE),
        "roberta-base": Preset({"temperature": 0.15}, 1e-5, 64, _TABLE),
        "roberta-large": Preset({"temperature": 0.17}, 1e-5, 64, _TABLE),
    }

    def formula(self, pairs: Pairs) -> Tensor:
        return torch.relu(pairs.gap(self.temperature))

    def components(self, pairs: Pairs) -> Terms:
        gap = pairs.gap(self.temperature)
        terms = _terms(pairs, self.temperature, "cross", torch.ones_like(gap))
        return replace(terms, dissipation=active(-gap, 0))
