"""What a formula asks of its row statistics: found out by asking, answered from what is known.

``Asking`` plays a batch of two rows and remembers the questions; ``Known`` answers from statistics
that are there already. A formula that asks for anything else, the matrix or the embeddings, cannot
be fused: ``Unfused`` says so to the caller, who takes another way.
"""

import functools
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.mixtures import Mixing
from isotrope.kernels.pairs import Pairs

__all__ = ["Asking", "Formula", "Key", "Kind", "Known", "Slope", "Unfused", "ask"]

Formula = Callable[[Pairs], Tensor]


class Unfused(Exception):
    """The formula asks for more than statistics, or for statistics that are not fused."""


Kind = Literal["logsumexp", "softplus", "hardest", "mixed"]
Key = tuple[Kind, Against]
Slope = Literal["constant", "common", "linear"]


class Known(Pairs):
    """Statistics that are there already; whatever else is asked for cannot be fused."""

    backend = "rowblock"

    def __init__(
        self, positive: Tensor, values: dict[Key, Tensor], counts: dict[Against, Tensor]
    ) -> None:
        self._positive, self.values, self.counts = positive, values, counts

    @property
    def views(self) -> Views:  # type: ignore[override]
        raise Unfused("the formula asks for the embeddings")

    @property
    def positive(self) -> Tensor:
        return self._positive

    def logsumexp(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        return self.values["logsumexp", against]

    def softplus(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        return self.values["softplus", against]

    def hardest(self, against: Against = "cross") -> Tensor:
        return self.values["hardest", against]

    def count(self, against: Against = "cross") -> Tensor:
        return self.counts[against]

    def of(self, views: Views) -> Pairs:
        raise Unfused("the formula compares other views")

    def mixed(self, mixing: Mixing, temperature: float | Tensor) -> Tensor:
        return self.values["mixed", "cross"]

    def nearest(self, k: int, against: Against = "cross") -> Tensor:
        raise Unfused("the formula asks for columns")

    def similarity(self, against: Against = "cross") -> Tensor:
        raise Unfused("the formula asks for the matrix")

    def negative(self, against: Against = "cross") -> Tensor:
        raise Unfused("the formula asks for the matrix")

    def columns(self, against: Against = "cross") -> Tensor:
        raise Unfused("the formula asks for the embeddings")


class Asking(Known):
    """Answers with noise and remembers the questions.

    Attributes:
        temperatures: of each question.
        mixing: of the mixture whose similarity is asked for, None without such a question.
        lasting: the answers hold next time too: no temperature is a tensor, which may change.
        rowwise: the value of a row depends on the statistics of that row only.
        slope: what is known of the derivatives by sums before there are any: ``linear`` (they do
            not depend on them: MIO), ``constant`` (those by log-sum-exps do not: DCLW), ``common``
            (they are one number, which does: uniformity), or nothing.
    """

    rowwise: bool
    slope: Slope | None = None
    lasting: bool = True
    mixing: Mixing | None = None

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(torch.tensor([0.3, 0.5, -0.2, 0.1], dtype=dtype), {}, {})
        self.temperatures: dict[Key, float] = {}

    @property
    def against(self) -> set[Against]:
        """What the rows are compared with, all questions together."""
        return {against for _, against in self.temperatures}

    @property
    def kinds(self) -> set[Kind]:
        """The statistics that are wanted."""
        return {kind for kind, _ in self.temperatures}

    def _answer(self, kind: Kind, temperature: float | Tensor, against: Against) -> Tensor:
        self.lasting &= not isinstance(temperature, Tensor)
        plain = float(temperature.detach() if isinstance(temperature, Tensor) else temperature)
        if self.temperatures.setdefault((kind, against), plain) != plain:
            raise Unfused("two temperatures")
        level = 0.1 * len(self.temperatures)
        self.values[kind, against] = torch.tensor([0.1, 0.2, -0.1, 0.4]).to(self.positive) + level
        return self.values[kind, against]

    def logsumexp(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        return self._answer("logsumexp", temperature, against)

    def softplus(self, temperature: float | Tensor, against: Against = "cross") -> Tensor:
        return self._answer("softplus", temperature, against)

    def hardest(self, against: Against = "cross") -> Tensor:
        return self._answer("hardest", 1.0, against)

    def mixed(self, mixing: Mixing, temperature: float | Tensor) -> Tensor:
        if self.mixing not in (None, mixing):
            raise Unfused("two mixtures")
        self.mixing = mixing
        return self._answer("mixed", temperature, "cross")

    def count(self, against: Against = "cross") -> Tensor:
        # not one number, by which a formula may weigh the rows
        self.counts[against] = torch.tensor([7.0, 5.0, 8.0, 6.0]).to(self.positive)
        return self.counts[against]

    def half(self, rows: slice) -> Known:
        """The same answers for some of the rows."""
        return Known(
            self.positive[rows],
            {key: value[rows] for key, value in self.values.items()},
            {against: value[rows] for against, value in self.counts.items()},
        )


# by formula: objectives are values, and asking costs what a batch of 64 does
_REMEMBERED: dict[tuple[Formula, torch.dtype], Asking] = {}
_MOST = 64


@torch.no_grad()
def ask(formula: Formula, dtype: torch.dtype) -> Asking:
    """Find out which statistics a formula wants, and whether it couples the rows.

    Raises:
        Unfused: it wants more than statistics.
    """
    if (formula, dtype) in _REMEMBERED:
        return _REMEMBERED[formula, dtype]
    asking = Asking(dtype)
    whole = formula(asking)
    if whole.ndim == 0:
        asking.rowwise = False
    else:
        halves = [formula(asking.half(rows)) for rows in (slice(0, 2), slice(2, 4))]
        asking.rowwise = torch.allclose(whole, torch.cat(halves), rtol=1e-4, atol=0)
    if _worth(asking):
        asking.slope = _slope(formula, asking)
    if asking.lasting:
        if len(_REMEMBERED) >= _MOST:
            _REMEMBERED.clear()
        _REMEMBERED[formula, dtype] = asking
    return asking


def _worth(asking: Asking) -> bool:
    """Whether to ask for the slope: not where a row is done with as soon as it met its columns,
    nor where it is asked again for every batch and only MIOv3 would gain.
    """
    if asking.kinds != {"logsumexp"}:
        return asking.kinds == {"softplus"}
    return not (asking.rowwise and (asking.against == {"cross"} or not asking.lasting))


@torch.enable_grad()
def _slope(formula: Formula, asking: Asking) -> Slope | None:
    """Compare the derivatives by the statistics at two places."""
    found, shares = [], []
    elsewhere = {key: 2 * x.flip(0) - 1 for key, x in asking.values.items()}
    for place in (asking.values, elsewhere):
        levels = {key: x.detach().requires_grad_() for key, x in place.items()}
        value = formula(Known(asking.positive, levels, asking.counts)).sum()
        by = torch.autograd.grad(value, list(levels.values()), allow_unused=True)
        given = [x for x in by if x is not None]
        if len(given) < len(by):
            return None
        found.append(torch.stack(given))
        shares.append(found[-1] / torch.stack(list(levels.values())).exp())
    alike = functools.partial(torch.allclose, rtol=1e-4, atol=0)
    if alike(*(found if asking.kinds == {"softplus"} else shares)):
        return "linear"
    if set(asking.values) != {("logsumexp", "cross")}:
        return None
    if alike(*found):
        return "constant"
    return "common" if all(alike(x, x[:, :1].expand_as(x)) for x in shares) else None
