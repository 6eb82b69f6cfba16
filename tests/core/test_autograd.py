"""Backward passes within autocast, and log(1 + e^x) where torch's own rounds."""

import math

import pytest
import torch
import torch.nn.functional as F

from isotrope.core.autograd import MARK, marked, nodes, seeded, softplus, unrounded


def test_it_is_exact_where_torchs_is_the_identity() -> None:
    x = torch.tensor([-30.0, 0.0, 3.0, 25.0], dtype=torch.float64, requires_grad=True)
    value = softplus(x)
    expected = [math.log1p(math.exp(v)) for v in x.tolist()]
    assert value.tolist() == pytest.approx(expected, rel=1e-15)
    assert value[3] > 25 == F.softplus(x)[3]
    (once,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    torch.testing.assert_close(once, torch.sigmoid(x))
    (twice,) = torch.autograd.grad(once.sum(), x)
    assert twice[3] == pytest.approx(math.exp(-25), rel=1e-4)


def test_nothing_adds_nothing() -> None:
    x = torch.tensor(-torch.inf, requires_grad=True)
    value = softplus(x)
    assert value == 0
    assert torch.autograd.grad(value, x)[0] == 0


@pytest.mark.parametrize("twice", [False, True])
def test_a_mark_lasts_as_long_as_the_graph(twice: bool) -> None:
    x = torch.ones(3, requires_grad=True)
    value = marked((x * x).sum(), "content")
    if twice:
        torch.autograd.grad(value, x, create_graph=True)
    torch.autograd.grad(value, x, retain_graph=True)
    assert value.grad_fn.metadata[MARK] == "content"
    value.backward()
    assert MARK not in value.grad_fn.metadata


def test_only_the_backward_pass_to_the_inputs_is_without_autocast() -> None:
    """The user's part keeps his autocast, and a leaf, whose node lasts, gets no hook."""
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    weight = torch.eye(3).requires_grad_()
    seen: list[bool] = []
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            given = x @ weight
            with torch.autocast("cpu", enabled=False):
                wide = given.float() * weight.sum()
                value = (wide @ wide.T).sum()
            assert unrounded(value, given) is value
            inner = list(nodes(value, given))
            assert given.grad_fn not in inner
            leaf = next(node for node in inner if hasattr(node, "variable"))
            for node in (leaf, given.grad_fn, value.grad_fn):
                node.register_prehook(  # type: ignore[union-attr]
                    lambda _: seen.append(torch.is_autocast_enabled("cpu"))
                )
            value.backward()
            assert torch.is_autocast_enabled("cpu")
    assert seen[:3] == [False, True, True]


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_the_generator_of_each_accelerator_is_restored(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {kind: "before"}
    module = torch.get_device_module(kind)
    monkeypatch.setattr(module, "get_rng_state", lambda device: states[device.type])
    monkeypatch.setattr(
        module, "set_rng_state", lambda state, device: states.update({device.type: state})
    )
    state = torch.get_rng_state()
    with seeded(5, torch.device(kind)):
        states[kind] = "within"
        drawn = torch.rand(3)
    assert states == {kind: "before"}
    assert torch.equal(torch.get_rng_state(), state)
    with seeded(5):
        assert torch.equal(torch.rand(3), drawn)
