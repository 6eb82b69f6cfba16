"""Hessian-vector products against the dense Hessian, in float64, of text, images and embeddings."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.diagnostics.curvature import (
    Hessian,
    extremes,
    parameter_hessian,
)
from isotrope.encoders.image import ImageEncoder
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.objectives import (
    DCLW,
    ArcCon,
    BarlowTwins,
    BarlowTwinsGrad,
    InfoNCE,
    MIOv3,
    NTXent,
    VICReg,
)
from isotrope.paradigm.objective import Objective
from isotrope.training.text_encoder import dropouts
from tests.diagnostics.embedding_hessian import embedding_hessian, entries

SLOW = pytest.mark.slow
OBJECTIVES = [NTXent(), MIOv3(), BarlowTwins(space="batchnorm"), InfoNCE(temperature=0.2)]
ids = [type(objective).__name__ for objective in OBJECTIVES]


@pytest.fixture(autouse=True)
def _float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def dense(module: nn.Module, loss: Callable[[nn.Module], Tensor]) -> Tensor:
    """The Hessian by torch.func: forward over reverse, every column at once.

    Not of batch norms: torch 2.13 then gives a matrix that is not even symmetric.
    """
    start = dict(module.named_parameters())
    wanted = [name for name, p in start.items() if p.requires_grad]

    class Bound(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self) -> Tensor:
            return loss(self.module)

    bound = Bound()

    def of(flat: Tensor) -> Tensor:
        parts = torch.split(flat, [start[name].numel() for name in wanted])
        values = {
            f"module.{name}": part.view_as(start[name])
            for name, part in zip(wanted, parts, strict=True)
        }
        return functional_call(bound, values)

    return torch.func.hessian(of)(flat([start[name] for name in wanted]))


def differences(module: nn.Module, loss: Callable[[], Tensor], directions: Tensor) -> Tensor:
    """Derivatives of the gradient along each row of ``directions``, of fourth order."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    start = [p.detach().clone() for p in parameters]

    def gradient(at: Tensor) -> Tensor:
        with torch.no_grad():
            pieces = at.split([p.numel() for p in parameters])
            for p, before, step in zip(parameters, start, pieces, strict=True):
                p.copy_(before + step.view_as(p))
        return flat(torch.autograd.grad(loss(), parameters))

    h, found = 1e-4, []
    for v in directions:
        near, far = (gradient(k * h * v) - gradient(-k * h * v) for k in (1, 2))
        found.append((8 * near - far) / (12 * h))
    gradient(torch.zeros_like(v))
    return torch.stack(found)


def flat(pieces: Sequence[Tensor]) -> Tensor:
    return torch.cat([piece.detach().reshape(-1) for piece in pieces])


def apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


def small_net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = [nn.Conv2d(3, 3, 3, stride=2), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(27, 4)).train()


@pytest.mark.parametrize(
    "objective", [OBJECTIVES[0], *(pytest.param(o, marks=SLOW) for o in OBJECTIVES[1:])], ids=ids
)
@pytest.mark.slow
def test_batch_norm_in_training_mode(objective: Objective) -> None:
    net, x, y = small_net(), drawn(6, 3, 8, 8), drawn(6, 3, 8, 8, seed=1)
    hessian = parameter_hessian(objective, lambda: Views(net(x), net(y)), net)
    unit = torch.eye(hessian.size)
    found = entries(hessian)
    reference = differences(net, lambda: objective(net(x), net(y), backend="eager"), unit)
    assert apart(found, reference) < 1e-6
    assert apart(found, found.T) < 1e-9


@pytest.mark.parametrize(
    "sizes",
    [{"name": "resnet9", "width": 2}, {"name": "vit-tiny", "width": 6}],
    ids=["resnet", "vit"],
)
def test_networks_of_images(sizes: dict) -> None:
    """Along three directions: all of their entries would take minutes."""
    net = ImageEncoder.build(image_size=8, seed=0, **sizes).double().train()
    x, y = drawn(5, 3, 8, 8).sigmoid(), drawn(5, 3, 8, 8, seed=1).sigmoid()
    objective = MIOv3()
    hessian = parameter_hessian(objective, lambda: Views(net(x), net(y)), net)
    directions = nn.functional.normalize(drawn(3, hessian.size, seed=3))
    found = torch.stack([hessian @ v for v in directions])
    reference = differences(net, lambda: objective(net(x), net(y), backend="eager"), directions)
    assert apart(found, reference) < 1e-6


@pytest.mark.parametrize("objective", [NTXent(), MIOv3(), VICReg()], ids=["NT", "MIO", "VICReg"])
def test_text_through_attention(objective: Objective) -> None:
    """A transformer: its attention has no second derivatives in the fused form."""
    texts = [f"word{i} other{i % 3} again thing{i % 2}" for i in range(5)]
    encoder = SentenceEncoder.scratch(
        texts, vocabulary=100, layers=1, width=4, heads=2, max_length=8
    ).double()
    for module, name in dropouts(encoder):
        setattr(module, name, 0.0)
    batch = encoder.pad(encoder.tokenize(texts, 8)[0])
    shift = drawn(5, 4, seed=4)

    def views(net: nn.Module) -> Views:
        h = net(batch["input_ids"], batch["attention_mask"])
        return Views(h, h + shift)

    hessian = parameter_hessian(objective, lambda: views(encoder), encoder.train())
    rows = torch.randperm(hessian.size, generator=torch.Generator().manual_seed(0))[:12]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        reference = dense(encoder, lambda m: objective.loss(views(m), backend="eager"))
    unit = torch.eye(hessian.size)
    found = torch.stack([hessian @ unit[i] for i in rows])
    assert apart(found, reference[rows]) < 1e-6


@pytest.mark.parametrize(
    "objective", [*OBJECTIVES, DCLW(), ArcCon(), VICReg()], ids=[*ids, "DCLW", "ArcCon", "VICReg"]
)
def test_embeddings(objective: Objective) -> None:
    anchors, positives = drawn(5, 3), drawn(5, 3, seed=1)
    found = entries(embedding_hessian(objective, Views(anchors, positives)))

    def of(flat: Tensor) -> Tensor:
        rows = flat.view(10, 3)
        return objective(rows[:5], rows[5:], backend="eager")

    reference = torch.func.hessian(of)(torch.cat([anchors, positives]).reshape(-1))
    assert apart(found, reference) < 1e-6


def test_further_negatives_are_embeddings_too() -> None:
    views = Views(drawn(4, 3), drawn(4, 3, seed=1), drawn(2, 3, seed=2))
    hessian = embedding_hessian(InfoNCE(), views)
    assert hessian.size == 30
    assert (hessian @ torch.ones(30))[-6:].abs().max() > 0


def test_a_held_target_is_a_constant() -> None:
    """Of a stopped gradient the Hessian is that of the loss with the target where it is."""
    net, x = nn.Linear(3, 2), drawn(4, 3)
    target = net(x).detach() + 1
    held = parameter_hessian(InfoNCE(), lambda: Views(net(x), (net(x) + 1).detach()), net)
    fixed = parameter_hessian(InfoNCE(), lambda: Views(net(x), target), net)
    v = drawn(held.size)
    assert torch.equal(held @ v, fixed @ v)


def test_what_is_drawn_comes_from_the_seed() -> None:
    """Dropout masks are the same in every product."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 3)).train()
    x = drawn(6, 4)
    before = torch.get_rng_state()
    one, same, other = (
        parameter_hessian(NTXent(), lambda: Views(net(x), net(x)), net, seed=seed)
        for seed in (5, 5, 6)
    )
    v = drawn(one.size)
    assert torch.equal(one @ v, same @ v)
    assert one.loss == same.loss
    assert one.loss != other.loss
    assert torch.equal(before, torch.get_rng_state())


def test_several_batches_are_a_mean() -> None:
    net = small_net()
    batches = [(drawn(5, 3, 8, 8, seed=s), drawn(5, 3, 8, 8, seed=s + 9)) for s in range(3)]
    terms = [lambda x=x, y=y: Views(net(x), net(y)) for x, y in batches]
    together = parameter_hessian(NTXent(), terms, net)
    alone = [parameter_hessian(NTXent(), one, net) for one in terms]
    v = drawn(together.size)
    assert apart(together @ v, sum(h @ v for h in alone) / 3) < 1e-12
    assert together.loss == pytest.approx(sum(h.loss for h in alone) / 3)
    assert apart(together.gradient, sum(h.gradient for h in alone) / 3) < 1e-12


def test_several_terms_are_a_mean() -> None:
    net, x, y = small_net(), drawn(5, 3, 8, 8), drawn(5, 3, 8, 8, seed=1)
    one, two = (lambda: Views(net(x), net(y))), (lambda: Views(net(y), net(x)))
    both = parameter_hessian(InfoNCE(), lambda: [one(), two()], net)
    v = drawn(both.size)
    alone = [parameter_hessian(InfoNCE(), term, net) @ v for term in (one, two)]
    assert apart(both @ v, sum(alone) / 2) < 1e-12


def test_running_statistics_stay_as_they_are() -> None:
    net, x, y = small_net(), drawn(5, 3, 8, 8), drawn(5, 3, 8, 8, seed=1)
    before = {name: b.clone() for name, b in net.named_buffers()}
    hessian = parameter_hessian(NTXent(), lambda: Views(net(x), net(y)), net)
    hessian @ drawn(hessian.size)
    for name, buffer in net.named_buffers():
        assert torch.equal(before[name], buffer), name


def test_a_quadratic_with_a_parameter_that_does_not_matter() -> None:
    a = drawn(3, 3)
    p, unused, straight = (drawn(3, seed=s).requires_grad_() for s in (1, 2, 3))
    hessian = Hessian([lambda: p @ (a + a.T) @ p / 2 + straight.sum()], [p, unused, straight])
    expected = torch.zeros(9, 9)
    expected[:3, :3] = a + a.T
    assert apart(entries(hessian), expected) < 1e-12
    flat = Hessian([lambda: straight.sum()], [straight])
    assert not (flat @ torch.ones(3)).any()


def test_a_hessian_in_inference_mode() -> None:
    p = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        assert (Hessian([lambda: p.square().sum()], [p]) @ torch.ones(2)).tolist() == [2, 2]


def test_what_is_no_hessian() -> None:
    p = torch.ones(2, requires_grad=True)
    with pytest.raises(InputError, match="and 0 parameters"):
        Hessian([lambda: p.sum()], [])
    with pytest.raises(InputError, match="0 losses"):
        Hessian([], [p])
    with pytest.raises(InputError, match="finite loss: the loss is nan"):
        Hessian([lambda: p.sum() * torch.nan], [p])
    with pytest.raises(ValueError, match=r"2 numbers; found the shape \(3,\)"):
        Hessian([lambda: p.square().sum()], [p]) @ torch.ones(3)


@pytest.mark.parametrize("objective", [BarlowTwinsGrad(), InfoNCE().modify(ratio=1.5)])
def test_a_surrogate_has_no_hessian_of_its_gradient(objective: Objective) -> None:
    net, x = nn.Linear(4, 3), torch.randn(6, 4)
    with pytest.raises(InputError, match="is defined by a gradient, not by a loss"):
        parameter_hessian(objective, lambda: Views(net(x), net(x)), net)
    with pytest.raises(InputError, match="is defined by a gradient"):
        embedding_hessian(objective, Views(x, x))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=ids)
def test_the_extremes_are_those_of_the_dense_hessian(objective: Objective) -> None:
    views = Views(drawn(6, 5), drawn(6, 5, seed=1))
    hessian = embedding_hessian(objective, views)
    eigenvalues = torch.linalg.eigvalsh(entries(hessian))
    low, high = extremes(hessian, tolerance=1e-9)
    assert low == pytest.approx(float(eigenvalues[0]), rel=1e-6)
    assert high == pytest.approx(float(eigenvalues[-1]), rel=1e-6)
    roughly = extremes(hessian, seed=1)
    assert roughly == pytest.approx((low, high), rel=0.02)
