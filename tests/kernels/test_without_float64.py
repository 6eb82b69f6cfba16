"""Apple's GPUs have no float64, and no GPU computes with tensors of the processor.

No GPU is needed here: ``Elsewhere`` refuses both alike.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import isotrope
from isotrope.core import rounding

aten = torch.ops.aten


class Elsewhere(torch.Tensor):
    """A tensor that computes on the processor, but says that it is on another device."""

    kept: Tensor

    @staticmethod
    def __new__(cls, kept: Tensor) -> "Elsewhere":
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(
            cls, kept.size(), strides=kept.stride(), dtype=kept.dtype, device="meta"
        )
        made.kept = kept
        return made

    @classmethod
    def __torch_dispatch__(cls, call: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(call, args, kwargs or {})


class _Calls(TorchDispatchMode):
    """Also catches calls that make tensors, such as ``torch.zeros(2, device=x.device)``."""

    def __torch_dispatch__(self, call: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(call, args, kwargs or {})


def _computed(call: Any, args: Any, kwargs: Any) -> Any:
    given: list[Any] = []
    tree_map(given.append, (args, kwargs))
    device = kwargs.get("device")
    here = not any(isinstance(x, Elsewhere) for x in given)
    here = here if device is None else torch.device(device).type == "cpu"
    if device is not None:
        kwargs = {**kwargs, "device": "cpu"}
    elif not here and call not in (aten.copy_.default, aten.index.Tensor):
        _check_together(call, given)
    if call is aten.detach.default and isinstance(args[0], float | int):  # as autograd calls it
        args = (torch.tensor(args[0]),)
    plain = tree_map(lambda x: x.kept if isinstance(x, Elsewhere) else x, (args, kwargs))
    found = call(*plain[0], **plain[1])
    if here or call is aten._local_scalar_dense.default:
        return found
    if call.__name__.split(".")[0].endswith("_"):
        return args[0]
    return tree_map(_put, found)


def _check_together(call: Any, given: list[Any]) -> None:
    """As on a GPU: of the processor's tensors, only a single number is read beside others."""
    tensors = [x for x in given if isinstance(x, Tensor)]
    written = call.__name__.split(".")[0].endswith("_") and not isinstance(tensors[0], Elsewhere)
    if written or any(x.ndim and not isinstance(x, Elsewhere) for x in tensors):
        raise RuntimeError("expected all tensors to be on the same device")


def _put(x: Any) -> Any:
    if isinstance(x, Tensor) and x.dtype == torch.float64:
        raise TypeError("this device has no float64")
    return Elsewhere(x) if isinstance(x, Tensor) else x


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Tensor], Tensor]]:
    known = torch.is_autocast_enabled
    monkeypatch.setattr(rounding, "WITHOUT_FLOAT64", {"meta"})
    monkeypatch.setattr(
        torch, "is_autocast_enabled", lambda kind="cuda": kind != "meta" and known(kind)
    )
    with _Calls():
        yield Elsewhere


def test_the_device_of_these_tests_has_no_float64(
    elsewhere: Callable[[Tensor], Tensor],
) -> None:
    x = elsewhere(torch.ones(2))
    with pytest.raises(TypeError, match="no float64"):
        x.double()
    with pytest.raises(TypeError, match="no float64"):
        torch.zeros(2, dtype=torch.float64, device=x.device)
    assert x.cpu().double().sum() == 2


@pytest.mark.parametrize("backend", ["eager", "rowblock"])
@pytest.mark.parametrize("name", ["NTXent", "MHE", "UniGrad", "ModifiedMHE", "VICRegGrad", "MIOv3"])
def test_objectives_need_no_float64(
    elsewhere: Callable[[Tensor], Tensor], name: str, backend: str
) -> None:
    objective = getattr(isotrope.objectives, name)()
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 12, 8, generator=random)
    results = []
    for put in (torch.clone, elsewhere):
        a, b = put(x).requires_grad_(), put(y).requires_grad_()
        loss = objective(a, b, backend=backend)
        loss.backward()
        results.append((loss.detach().cpu(), a.grad.cpu(), b.grad.cpu()))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("where", ["beside the rows", "on the processor"])
@pytest.mark.parametrize("backend", ["auto", "rowblock"])
@pytest.mark.parametrize("name", ["InfoNCE", "NTXent", "DCL", "DCLW", "MixCSE", "MIOv3"])
def test_a_learnt_temperature_may_be_on_either_device(
    elsewhere: Callable[[Tensor], Tensor], name: str, backend: str, where: str
) -> None:
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 12, 8, generator=random)
    results = []
    for put in (torch.clone, elsewhere):
        a, b, tau = put(x).requires_grad_(), put(y).requires_grad_(), torch.tensor(0.2)
        tau = (put(tau) if where == "beside the rows" else tau).requires_grad_()
        loss = getattr(isotrope.objectives, name)(temperature=tau)(a, b, backend=backend)
        (2 * loss).backward()
        results.append((loss.detach().cpu(), a.grad.cpu(), b.grad.cpu(), tau.grad.cpu()))
    torch.testing.assert_close(results[1], results[0])


def _softmax(u: Tensor, v: Tensor, put: Callable[[Tensor], Tensor]) -> Tensor:
    return F.cross_entropy(u @ v.T / 0.05, put(torch.arange(len(u))))


def _triplet(u: Tensor, v: Tensor, put: Callable[[Tensor], Tensor]) -> Tensor:
    return F.triplet_margin_loss(u, v, v.roll(1, 0), margin=0.5)


def _sigmoid(u: Tensor, v: Tensor, put: Callable[[Tensor], Tensor]) -> Tensor:
    return -F.logsigmoid((10 * u @ v.T - 5) * put(2 * torch.eye(len(u)) - 1)).sum() / len(u)


def _scored(u: Tensor, v: Tensor, put: Callable[[Tensor], Tensor]) -> Tensor:
    return F.mse_loss((u * v).sum(dim=1), put(torch.linspace(0, 1, len(u))))


@pytest.mark.parametrize("loss", [_softmax, _triplet, _sigmoid, _scored])
def test_the_doctor_measures_without_float64(
    elsewhere: Callable[[Tensor], Tensor], loss: Callable[..., Tensor]
) -> None:
    reports = []
    for put in (torch.clone, elsewhere):
        random = torch.Generator().manual_seed(0)
        weight = put(torch.randn(16, 8, generator=random) / 10).requires_grad_()
        doctor = isotrope.Doctor(every=1)
        for _ in range(4):
            x, noise = torch.randn(2, 32, 16, generator=random)
            u, v = (F.normalize(put(t) @ weight, dim=1) for t in (x, x + 0.3 * noise))
            value = loss(u, v, put)
            doctor.observe(value)
            value.backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
            weight.grad = None
        reports.append(str(doctor.diagnose(batch_size=32)))
    assert reports[1] == reports[0]
    assert "measured until" not in reports[1]
    assert "measured no step" not in reports[1]
