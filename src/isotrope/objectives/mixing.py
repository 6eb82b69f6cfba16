"""Mixed negatives: InfoNCE with one additional, synthetic hard negative for each anchor."""

import dataclasses
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from isotrope.core.autograd import softplus
from isotrope.core.hyper import Hyper, Paper, Temperature
from isotrope.core.terms import Terms
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.mixed_negatives import MixedNegatives, MixingRule, Of
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.objective import Objective


def _share(text: str) -> Hyper:
    # at most half: a mixture that is mostly the positive would be a false negative
    return Hyper("lambda", text, at_least=0, at_most=0.5, constant=True)  # as the mixtures are


class _Mixed:
    """Base class, to inherit before ``Objective``: InfoNCE with a constant mixture as negative."""

    temperature: float
    coupling: ClassVar[Coupling] = "none"
    holds: ClassVar[Literal["nothing", "negatives", "mixtures", "everything"]] = "mixtures"

    @property
    def mixing(self) -> MixingRule:
        """The two columns to mix, and their shares."""
        raise TypeError(f"define `mixing` (which vectors to mix) in {type(self).__name__}")

    def formula(self, pairs: Pairs) -> Tensor:
        tau = self.temperature
        positive = pairs.positive / tau
        plain = softplus(pairs.logsumexp(tau) - positive)  # InfoNCE
        return torch.logaddexp(plain, pairs.mixed(self.mixing, tau) - positive)

    def attraction(self, pairs: Pairs) -> Tensor:
        return -pairs.positive / self.temperature

    def repulsion(self, pairs: Pairs) -> Tensor:
        return self.formula(pairs) - self.attraction(pairs)

    def components(self, pairs: Pairs) -> Terms:
        """Return the terms; the weight of a mixture is divided between its two columns."""
        mixture = pairs.mixture(self.mixing)
        terms, of_mixture = _apart(pairs, mixture, self.temperature)
        rows = torch.arange(len(of_mixture), device=of_mixture.device)
        positive_column = rows[:, None] + pairs.views.offset
        columns, parts = mixture.columns.clamp_min(0), of_mixture[:, None] * mixture.shares
        weight = terms.weight.scatter_add(1, columns, parts)
        # the positive's share in the mixture reduces the pull instead of pushing
        pull = terms.pull - weight.gather(1, positive_column).squeeze(1)
        return dataclasses.replace(terms, weight=weight.scatter(1, positive_column, 0.0), pull=pull)

    def swapped_components(self, pairs: Pairs) -> Terms:
        """Return the terms without the mixture, which is constant and receives no gradient."""
        return _apart(pairs, pairs.mixture(self.mixing), self.temperature)[0]


def _apart(pairs: Pairs, mixture: MixedNegatives, tau: float) -> tuple[Terms, Tensor]:
    """Return the terms, whose pull includes the mixtures, and the weights of the n mixtures."""
    mixed = mixture.logits(pairs.views.anchors, tau)
    total = torch.logaddexp(pairs.logsumexp(tau), mixed)
    shift = total.masked_fill(total == -torch.inf, 0.0)  # no negatives: no weights
    logits = (pairs.similarity() / tau).masked_fill(~pairs.negative(), -torch.inf)
    weight = (logits - shift[:, None]).exp() / tau
    of_mixture = (mixed - shift).exp() / tau
    terms = Terms(
        dissipation=torch.sigmoid(total - pairs.positive / tau),
        weight=weight,
        pull=weight.sum(dim=1) + of_mixture,
        scale=1 / len(pairs.views.anchors),
    )
    return terms, of_mixture


class MixedInfoNCE(
    _Mixed,
    Objective,
    paper=Paper(
        "Hard Negative Mixing for Contrastive Learning",
        "Kalantidis et al., 2020",
        "Nie et al., 2023, eq. 47-49",
    ),
):
    r"""InfoNCE with one more negative for each anchor: a mixture of two vectors.

    Loss: L_i = -log( e^{s_ii'/tau} / (e^{s_ii'/tau} + sum_{j != i} e^{s_ij'/tau} + e^{h_i.v_i/tau})
    ), where s_ij' is the cosine of anchor h_i and positive h'_j. The mixture is v_i = (lambda h'_g
    + (1 - lambda) h'_a) / Z_i. Row a is the hardest negative of anchor i. Row g is the second
    hardest (``mix="negatives"``) or the positive (``mix="positive"``). lambda is ``share``. Z_i is
    the norm of the weighted sum, or 1 with ``renormalise=False``.

    Gradient: let S_i = sum_{k != i} e^{s_ik'/tau} + e^{h_i.v_i/tau} be the sum over the negatives;
    let c_ij be the share of h'_j in v_i: c_ia = (1 - lambda) / Z_i, c_ig = lambda / Z_i, all others
    0; dissipation GD_i = 1 / (1 + e^{s_ii'/tau} / S_i); weight W_ij = (e^{s_ij'/tau} + c_ij
    e^{h_i.v_i/tau}) / (tau S_i); the pull of the positive is (1 - c_ii e^{h_i.v_i/tau} / S_i) /
    tau. With ``mix="positive"``, g is i, so c_ii > 0 and the pull is weaker. With
    ``renormalise=False``, the ratio R of pull and push is 1.

    The mixtures v_i are constant: no gradient flows through them to the mixed embeddings. An anchor
    gets no mixture if it has too few negatives for a and g, or if the weighted sum of the two
    vectors is 0. All sums over j or k include additional negatives.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Nie et al., 2023, appendix E, eq. 47 (negatives) and 48 (positive), with one mixture
    for each anchor (M = 1). The vectors to mix are the hardest, not random ones. The paper's upper
    bounds on this loss (eq. 50 and 51) hold only with ``renormalise=False``.

    Example:
        >>> import torch
        >>> objective = MixedInfoNCE(mix="positive", share=0.5, temperature=1.0)
        >>> round(float(objective(torch.eye(2), torch.eye(2))), 6)
        0.748573
    """

    temperature: Temperature = 0.05
    mix: Annotated[
        Literal["negatives", "positive"],
        Hyper("", "mix the hardest negative with the second hardest, or with the positive"),
    ] = "negatives"
    share: Annotated[
        float, _share("share of the second hardest negative or of the positive in the mixture")
    ] = 0.2
    renormalise: Annotated[bool, Hyper("", "scale each mixture to length 1")] = True

    @property
    def mixing(self) -> MixingRule:
        negatives = self.mix == "negatives"
        of: Of = "second and hardest" if negatives else "positive and hardest"
        return MixingRule(of, self.share, renormalise=self.renormalise)


class MixCSE(
    _Mixed,
    Objective,
    paper=Paper(
        "Unsupervised Sentence Representation via Contrastive Learning with Mixing Negatives",
        "Zhang et al., 2022 (AAAI)",
        "Nie et al., 2023, eq. 48, 49",
    ),
):
    r"""InfoNCE with one more negative for each anchor: a mixture of two positives.

    Loss: L_i = -log( e^{s_ii'/tau} / (e^{s_ii'/tau} + sum_{j != i} e^{s_ij'/tau} + e^{h_i.v_i/tau})
    ), where s_ij' is the cosine of anchor h_i and positive h'_j. The mixture is v_i = (lambda h'_i
    + (1 - lambda) h'_{i+1}) / Z_i, where Z_i is the norm of the sum, and lambda is ``share``. Row
    i + 1 is the next row of the batch; after the last row comes the first.

    Gradient: let S_i = sum_{k != i} e^{s_ik'/tau} + e^{h_i.v_i/tau}; dissipation GD_i = 1 / (1 +
    e^{s_ii'/tau} / S_i); weight W_ij = (e^{s_ij'/tau} + c_ij e^{h_i.v_i/tau}) / (tau S_i), with
    c_ij = (1 - lambda) / Z_i for j = i + 1, else 0; the pull of the positive is (1 -
    e^{h_i.v_i/tau} lambda / (Z_i S_i)) / tau. The ratio R of pull and push is at most 1.

    The mixtures v_i are constant. All sums over j or k include additional negatives. The paper
    mixes the positive with a random negative. This class takes the next row's positive, which is
    random if batches are shuffled; the loss therefore depends on the order of the rows. The
    released code compares all anchors and positives with the mixtures of all anchors.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: Nie et al., 2023, eq. 48 and 49, with one mixture for each anchor (M = 1). The
    default lambda is that of the released code.

    Example:
        >>> import torch
        >>> objective = MixCSE(share=0.5, temperature=1.0)
        >>> round(float(objective(torch.eye(2), torch.eye(2))), 6)
        0.748573
    """

    temperature: Temperature = 0.05
    share: Annotated[float, _share("share of the positive in the mixture")] = 0.2

    invariances = frozenset({"rotation", "scale"})

    @property
    def mixing(self) -> MixingRule:
        return MixingRule("positive and following", self.share)
