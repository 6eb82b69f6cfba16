"""torch.compile: an objective gives the same value and gradient as without it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from isotrope.objectives import DCL, MET, InfoNCE
from isotrope.paradigm.objective import Objective


def _of(loss: Callable[..., Tensor], n: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(n, 8, generator=generator, requires_grad=True) for _ in range(2)]
    value = loss(*views)
    value.backward()
    return [value.detach(), *(view.grad for view in views if view.grad is not None)]


# dynamo itself looks at gradients of tensors that are no leaves, makes an autograd function, and
# tells of a cache that it does not use
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.filterwarnings("ignore:.* should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize(
    ("objective", "n"),
    [
        *((objective, n) for objective in (InfoNCE(), DCL(), MET()) for n in (8, 300)),
        *(
            pytest.param(kind(), 8, marks=pytest.mark.nightly)
            for name, kind in sorted(Objective.registered.items())
        ),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_compiled_objectives_give_the_same(objective: Objective, n: int) -> None:
    torch.compiler.reset()
    compiled = torch.compile(objective, backend="eager", fullgraph=False)
    for found, expected in zip(_of(compiled, n), _of(objective, n), strict=True):
        torch.testing.assert_close(found, expected)
