"""Counts anchors that a ratio brings closer to their positives (Li et al., 2024, figure 8a).

Lemma 1 says for every anchor, and a step lambda, above which ratio it comes closer to its positive.
The paper draws the distribution of that minimum over a model's anchors "under different lambda"
without saying which; isotrope chose those here, and the result names them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isotrope.core.views import Views
from papers.li2024.lemma import angles_of, lemma1

STEPS = (0.0, 0.1, 0.25, 0.5, 1.0)
"""The lambda that are looked at by default; 0 is the limit of small steps."""


@dataclass(frozen=True, eq=False)
class LemmaShare:
    """The anchors of a batch that satisfy Lemma 1 at one step.

    Attributes:
        step: lambda.
        minimum: k lower bounds of the ratio, ascending: those of the anchors that count.
        satisfied: anchors whose ratio lies between the bounds.
        overshot: anchors that count whose ratio is at the upper bound or above it.
        unbounded: acute anchors with a negative discriminant: no ratio brings them closer.
        obtuse: anchors with one of the three angles at pi/2 or above.
    """

    step: float
    minimum: Tensor
    satisfied: int
    overshot: int
    unbounded: int
    obtuse: int

    @property
    def counted(self) -> int:
        """Anchors that count: acute, with bounds."""
        return len(self.minimum)

    @property
    def share(self) -> float | None:
        """Satisfied / counted; None if no anchor counts."""
        return self.satisfied / self.counted if self.counted else None


@torch.no_grad()
def lemma_share(
    views: Views, ratio: Tensor | float = 1.0, steps: Sequence[float] = STEPS
) -> list[LemmaShare]:
    """Return the share of anchors that satisfy Lemma 1 with their hardest negative, for each step.

    cos(alpha) is the cosine of the tangent parts of h'_i and h'_j at h_i. Anchors count if their
    three angles are acute, as in the statistic that the paper's authors released; those among them
    with a negative discriminant are counted apart, and so are the others.

    Example:
        >>> anchors = torch.tensor([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]])
        >>> positives = torch.tensor([[0.8, 0.6, 0.0], [0.8, 0.6, 0.0]])
        >>> [found] = lemma_share(Views(anchors, positives), ratio=1.5, steps=[0.0])
        >>> found.minimum.tolist(), found.share
        ([1.0, 1.0], 1.0)
    """
    at = angles_of(views)
    r = torch.as_tensor(ratio, dtype=at.positive.dtype, device=at.positive.device)
    if r.shape not in ((), at.positive.shape):
        raise ValueError(
            f"a ratio is one number or one for each of {len(at.positive)} anchors; found shape "
            f"{tuple(r.shape)}"
        )
    acute = torch.stack(at).cos().gt(0).all(dim=0)
    shares = []
    for step in steps:
        bounds = lemma1(*at, step)
        counts = acute & (bounds.discriminant >= 0)
        shares.append(
            LemmaShare(
                step=step,
                minimum=bounds.lower[counts].sort().values,
                satisfied=int((counts & (bounds.lower < r) & (r < bounds.upper)).sum()),
                overshot=int((counts & (r >= bounds.upper)).sum()),
                unbounded=int((acute & ~counts).sum()),
                obtuse=int((~acute).sum()),
            )
        )
    return shares
