"""Mixed negatives: InfoNCE with one synthetic hard negative for each anchor."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from isotrope.core.hyper import Hyper, Temperature
from isotrope.core.terms import Terms
from isotrope.kernels.pairs import Pairs
from isotrope.objectives.infonce import InfoNCE
from isotrope.paradigm.assemble import averaged
from isotrope.paradigm.forms import Symmetric
from isotrope.paradigm.objective import Objective, Paper

# at most half: a negative that is mostly the positive would be a false one
_SHARE = Hyper("lambda", "share of the positive (or the easier negative)", at_least=0, at_most=0.5)


class MixedInfoNCE(
    Objective,
    paper=Paper(
        "Hard Negative Mixing for Contrastive Learning",
        "Kalantidis et al., 2020; Nie et al., 2023",
        "paper 001, eq. 47-49",
    ),
):
    r"""InfoNCE with one more negative for each anchor, mixed of its hardest ones.

    Loss: L_i = -log( e^{s_ii'/tau} / (e^{s_ii'/tau} + sum_{j != i} e^{s_ij'/tau} +
    e^{h_i.x_i/tau}) ), x_i = (lambda h'_g + (1 - lambda) h'_n) / Z_i with n the hardest negative
    of anchor i and g its second hardest (``mix="negatives"``) or its positive
    (``mix="positive"``); Z_i the norm of the sum, or 1 with ``renormalise=False``.

    Gradient: with S_i = sum_{k != i} e^{s_ik'/tau} + e^{h_i.x_i/tau},
    GD_i = 1 / (1 + e^{s_ii'/tau} / S_i); tau S_i W_ij = e^{s_ij'/tau} + c_ij e^{h_i.x_i/tau},
    c_in = (1 - lambda) / Z_i, c_ig = lambda / Z_i, else 0; tau S_i sum_j W_ij R_ij =
    S_i - c_ii e^{h_i.x_i/tau}: a mixture with the positive pulls less. R = 1 if not renormalised.

    The mixtures are constant, as in both methods: nothing flows into what they are made of. An
    anchor with too few negatives, or a mixture whose two parts cancel, goes without.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: paper 001, appendix E, eq. 47 (negatives) and 48 (positive), M = 1, without a random
    choice. Its bounds eq. 50 and 51 need ``renormalise=False``.

    Example:
        >>> import torch
        >>> objective = MixedInfoNCE(mix="positive", share=0.5, temperature=1.0)
        >>> round(float(objective(torch.eye(2), torch.eye(2))), 6)
        0.748573
    """

    temperature: Temperature = 0.05
    mix: Annotated[
        Literal["negatives", "positive"],
        Hyper("", "what the hardest negative is mixed with: the next hardest, or the positive"),
    ] = "negatives"
    share: Annotated[float, _SHARE] = 0.2
    renormalise: Annotated[bool, Hyper("", "mixtures go back to the sphere")] = True

    def mixture(self, pairs: Pairs) -> "Mixture":
        """Return the mixed negative of every anchor."""
        host, guest = pairs.nearest(2).unbind(dim=1)
        if self.mix == "positive":
            guest = _own(pairs)
        exists = (host >= 0) & (guest >= 0)
        return _mixture(pairs, guest, host, exists, self.share, renormalise=self.renormalise)

    def formula(self, pairs: Pairs) -> Tensor:
        return self.mixture(pairs).loss(pairs, self.temperature)

    def components(self, pairs: Pairs) -> Terms:
        return self.mixture(pairs).terms(pairs, self.temperature)

    def attraction(self, pairs: Pairs) -> Tensor:
        return -pairs.positive / self.temperature

    def repulsion(self, pairs: Pairs) -> Tensor:
        return self.formula(pairs) - self.attraction(pairs)

    def symmetric(self) -> Objective:
        return SymmetricMixed(objective=self)


class MixCSE(
    Objective,
    paper=Paper(
        "Unsupervised Sentence Representation via Contrastive Learning with Mixing Negatives",
        "Zhang et al., 2022 (AAAI)",
        "paper 001, eq. 48, 49",
    ),
):
    r"""InfoNCE with one more negative for each anchor, mixed of its positive and the next row.

    Loss: L_i = -log( e^{s_ii'/tau} / (e^{s_ii'/tau} + sum_{j != i} e^{s_ij'/tau} +
    e^{h_i.x_i/tau}) ), x_i = (lambda h'_i + (1 - lambda) h'_{i+1}) / Z_i, Z_i the norm of the sum
    and i + 1 the next row of the batch, in a circle.

    Gradient: with S_i = sum_{k != i} e^{s_ik'/tau} + e^{h_i.x_i/tau},
    GD_i = 1 / (1 + e^{s_ii'/tau} / S_i); tau S_i W_ij = e^{s_ij'/tau}, plus
    e^{h_i.x_i/tau} (1 - lambda) / Z_i for j = i + 1; tau S_i sum_j W_ij R_ij =
    S_i - e^{h_i.x_i/tau} lambda / Z_i: the ratio is dynamic, and at most 1.

    The mixtures are constant. The released code also shows every anchor the mixtures of the
    others, and every positive the mixtures of the anchors. The next row of a shuffled batch is the
    random negative of the paper; so the value depends on the order of the batch.

    Shapes: anchors n x d, positives n x d, negatives q x d or None -> scalar (mean over anchors).

    Reference: paper 001, eq. 48 and 49 with M = 1; lambda of the released code.

    Example:
        >>> import torch
        >>> objective = MixCSE(share=0.5, temperature=1.0)
        >>> round(float(objective(torch.eye(2), torch.eye(2))), 6)
        0.748573
    """

    temperature: Temperature = 0.05
    share: Annotated[float, _SHARE] = 0.2

    invariances = frozenset({"rotation", "scale"})

    def mixture(self, pairs: Pairs) -> "Mixture":
        """Return the mixed negative of every anchor."""
        own = _own(pairs)
        following = (own + 1) % len(pairs.views.positives)
        exists = pairs.negative().gather(1, following[:, None]).squeeze(1)
        return _mixture(pairs, own, following, exists, self.share, renormalise=True)

    def formula(self, pairs: Pairs) -> Tensor:
        return self.mixture(pairs).loss(pairs, self.temperature)

    def components(self, pairs: Pairs) -> Terms:
        return self.mixture(pairs).terms(pairs, self.temperature)

    def attraction(self, pairs: Pairs) -> Tensor:
        return -pairs.positive / self.temperature

    def repulsion(self, pairs: Pairs) -> Tensor:
        return self.formula(pairs) - self.attraction(pairs)

    def symmetric(self) -> Objective:
        return SymmetricMixed(objective=self)


class SymmetricMixed(Symmetric, register=False):
    """The mean of both directions of an objective with mixed negatives.

    What a positive receives differs from what its anchor's terms say: a mixture is constant.
    """

    objective: MixedInfoNCE | MixCSE

    def components(self, pairs: Pairs) -> Terms:
        swapped = pairs.swapped()
        mixture = self.objective.mixture(swapped)
        other, _ = mixture.apart(swapped, self.objective.temperature)
        return averaged(self.objective.components(pairs), other, swapped.views)


@dataclass(frozen=True)
class Mixture:
    """One constant mixed negative for each anchor: a sum of two columns.

    Attributes:
        vectors: n x d.
        columns: n x 2, which columns of the other view it is made of.
        shares: n x 2, how much of each.
        exists: n booleans; the others have none, and zeros everywhere.
    """

    vectors: Tensor
    columns: Tensor
    shares: Tensor
    exists: Tensor

    def logits(self, pairs: Pairs, temperature: float) -> Tensor:
        """Return h_i.x_i / tau, n; -inf where there is no mixture."""
        similarity = (pairs.views.anchors * self.vectors).sum(dim=1)
        return (similarity / temperature).masked_fill(~self.exists, -torch.inf)

    def loss(self, pairs: Pairs, temperature: float) -> Tensor:
        """Return the cross-entropy with the mixture as one more candidate, n."""
        plain = InfoNCE(temperature=temperature).formula(pairs)
        return torch.logaddexp(
            plain, self.logits(pairs, temperature) - pairs.positive / temperature
        )

    def apart(self, pairs: Pairs, temperature: float) -> tuple[Terms, Tensor]:
        """Return the terms with the mixture as a negative of its own, whose weights (n) follow."""
        mixed = self.logits(pairs, temperature)
        total = torch.logaddexp(pairs.logsumexp(temperature), mixed)
        shift = total.masked_fill(total == -torch.inf, 0.0)  # no negatives: no weights
        logits = (pairs.similarity() / temperature).masked_fill(~pairs.negative(), -torch.inf)
        weight = (logits - shift[:, None]).exp() / temperature
        of_mixture = (mixed - shift).exp() / temperature
        terms = Terms(
            dissipation=torch.sigmoid(total - pairs.positive / temperature),
            weight=weight,
            pull=weight.sum(dim=1) + of_mixture,
            scale=1 / len(pairs.views.anchors),
        )
        return terms, of_mixture

    def terms(self, pairs: Pairs, temperature: float) -> Terms:
        """Return the terms with the mixture counted as what it is made of."""
        terms, of_mixture = self.apart(pairs, temperature)
        own = _own(pairs)[:, None]
        weight = terms.weight.scatter_add(1, self.columns, of_mixture[:, None] * self.shares)
        # what it has of the positive does not push: it pulls less
        pull = terms.pull - weight.gather(1, own).squeeze(1)
        return dataclasses.replace(terms, weight=weight.scatter(1, own, 0.0), pull=pull)


def _mixture(
    pairs: Pairs, guest: Tensor, host: Tensor, exists: Tensor, share: float, *, renormalise: bool
) -> Mixture:
    columns = torch.stack([guest, host], dim=1).clamp_min(0)
    parts = pairs.columns().detach()[columns]  # n x 2 x d
    shares = parts.new_tensor([share, 1 - share]).expand(len(parts), 2)
    if renormalise:
        size = torch.linalg.vector_norm((shares[:, :, None] * parts).sum(dim=1), dim=1)
        exists = exists & (size > 1e-6)  # two parts that cancel have no direction
        shares = shares / size.where(exists, 1.0)[:, None]
    shares = shares * exists[:, None]
    return Mixture((shares[:, :, None] * parts).sum(dim=1), columns, shares, exists)


def _own(pairs: Pairs) -> Tensor:
    """The column of each anchor's positive, n."""
    views = pairs.views
    return torch.arange(len(views.anchors), device=views.anchors.device) + views.offset
