"""Implements ``Pairs``, from which objectives compute their components, for given angles."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from isotrope.core.autograd import softplus
from isotrope.core.errors import InputError
from isotrope.core.terms import Against
from isotrope.core.views import Views
from isotrope.kernels.eager import EagerPairs
from isotrope.kernels.pairs import Pairs

_NO_EMBEDDINGS = (
    "measure this objective on real embeddings (`objective.terms`): it computes with the "
    "embeddings themselves, and a simulation has only angles"
)


class _Unknown(Tensor):
    """Placeholder for unknown embeddings; whatever is computed from it is a placeholder too.

    An objective may therefore compute quantities that do not exist here, such as the gradient that
    an anchor gets as a negative. GD, W and the pull must not depend on it. The placeholder is on
    the device ``meta``, which stores no numbers.

    Raises:
        InputError: A number of the placeholder is read.
    """

    _SHAPES = (
        Tensor.__len__,
        Tensor.is_floating_point,
        *(getattr(Tensor, name).__get__ for name in ("ndim", "shape", "dtype", "device", "layout")),
    )
    _NUMBERS = (Tensor.__bool__, Tensor.__float__, Tensor.__iter__, Tensor.item, Tensor.tolist)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func in cls._SHAPES:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        if func is Tensor.__repr__:
            return "embeddings of which only the angles are known"
        if func in cls._NUMBERS:
            raise InputError(_NO_EMBEDDINGS)
        # keep the number of rows and the dtype, because the result may have to fit other views
        same_rows = next((x for x in args if isinstance(x, cls)), None)
        rows, dtype = (1, None) if same_rows is None else (len(same_rows), same_rows.dtype)
        return torch.empty(rows, 1, dtype=dtype, device="meta").as_subclass(cls)


def _embeddings(rows: int, like: Tensor) -> Views:
    unknown = torch.empty(rows, 1, dtype=like.dtype, device="meta").as_subclass(_Unknown)
    return Views(unknown, unknown)


class AnglePairs(Pairs):
    """Pairs with given similarities: every anchor has its own positive and its own k negatives.

    Unlike in a batch, no row is the negative of another. The argument ``against``, which selects
    the view of the negatives, has no effect, because both views have the same k negatives.

    Args:
        positive: Cosines of the angles to the positives: b values, or p x b for p anchors that
            share each of the b rows of negatives (only if not ``whole``).
        negatives: Cosines of the angles to the negatives, b x k, k >= 1.
        whole: Whether weights are needed. If not, the matrix has only each anchor's hardest
            negative, to save memory. Gradient dissipation is then exact if it depends only on
            statistics such as the largest similarity; weights have no meaning.
    """

    backend = "angles"

    def __init__(self, positive: Tensor, negatives: Tensor, *, whole: bool = True) -> None:
        super().__init__(_embeddings(positive.numel(), positive))
        self._positive, self._negatives, self._whole = positive, negatives, whole
        # objectives with the same temperature share a sum
        self._logsum = functools.cache(lambda tau: torch.logsumexp(negatives / tau, dim=1))
        self._largest = functools.cache(lambda: negatives.amax(dim=1))

    def _each(self, statistic: Tensor) -> Tensor:
        return statistic.expand(self._positive.shape).flatten()

    def of(self, views: Views) -> Pairs:
        return EagerPairs(views)  # of unknown embeddings, as all that these pairs can show

    @property
    def positive(self) -> Tensor:
        return self._positive.flatten()

    def _logsumexp(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self._each(self._logsum(temperature))

    def hardest(self, against: Against = "cross") -> Tensor:
        return self._each(self._largest())

    def _softplus(self, temperature: float | Tensor, against: Against) -> Tensor:
        return self._each(softplus(self._negatives / temperature).sum(dim=1))

    def count(self, against: Against = "cross") -> Tensor:
        return torch.full_like(self.positive, self._negatives.shape[1])

    def similarity(self, against: Against = "cross") -> Tensor:
        return self._negatives if self._whole else self.hardest(against)[:, None]

    def negative(self, against: Against = "cross") -> Tensor:
        columns = self._negatives.shape[1] if self._whole else 1
        return torch.ones((), dtype=torch.bool).expand(self._positive.numel(), columns)

    def columns(self, against: Against = "cross") -> Tensor:
        return self.views.anchors


def check_computable(*computed: Tensor) -> None:
    """Raise an error if a tensor was computed from embeddings: a simulation has only angles."""
    if any(x.device.type == "meta" for x in computed):
        raise InputError(_NO_EMBEDDINGS)


def probe() -> tuple[AnglePairs, AnglePairs]:
    """Return 256 anchors with random angles, and the same with negatives in reverse order."""
    random = torch.Generator().manual_seed(0)
    positive, mean = torch.rand(2, 256, generator=random, dtype=torch.float64) * torch.pi
    spread = 0.1 * torch.randn(256, 16, generator=random, dtype=torch.float64)
    negative = (mean[:, None] + spread).cos()
    return AnglePairs(positive.cos(), negative), AnglePairs(positive.cos(), negative.flip(1))
