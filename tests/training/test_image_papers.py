"""Every method against its paper's pseudo-code, written again here with plain torch, in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize, relu

from isotrope.core.errors import InputError
from isotrope.core.image_methods import METHODS
from isotrope.paradigm import registry
from isotrope.training.images.method import ImageMethod
from isotrope.training.images.settings import find_method, options_of
from tests.training.tiny_images import batch, gradients, learn, method, twin


def simclr(m: ImageMethod, crops: list[Tensor]) -> Tensor:
    """Chen et al., algorithm 1: 2N rows, each against all others; temperature .1."""
    z = normalize(torch.cat([m.projector(m.encoder(x)) for x in crops]), dim=1)
    n = len(z) // 2
    logits = (z @ z.T / 0.1).masked_fill(torch.eye(2 * n, dtype=torch.bool), -torch.inf)
    return cross_entropy(logits, torch.arange(2 * n).roll(n))


def moco_v2(m: ImageMethod, crops: list[Tensor]) -> Tensor:
    """He et al., algorithm 1, symmetric; temperature .07."""
    f, g, key = m.encoder, m.projector, m.target.module
    queue = normalize(m.queue.rows.double(), dim=1)
    losses = []
    for x, other in ((crops[0], crops[1]), (crops[1], crops[0])):
        q = normalize(g(f(x)), dim=1)
        with torch.no_grad():
            k = normalize(key(other), dim=1)
        logits = torch.cat([(q * k).sum(dim=1, keepdim=True), q @ queue.T], dim=1)
        losses.append(cross_entropy(logits / 0.07, torch.zeros(len(q), dtype=torch.long)))
    return (losses[0] + losses[1]) / 2


def moco_v3(m: ImageMethod, crops: list[Tensor]) -> Tensor:
    """Chen, Xie and He, algorithm 1, whose 2 tau is left out; temperature .2."""
    q = [normalize(m.predictor(m.projector(m.encoder(x))), dim=1) for x in crops]
    with torch.no_grad():
        k = [normalize(m.target.module(x), dim=1) for x in crops]
    labels = torch.arange(len(q[0]))
    both = [cross_entropy(q[0] @ k[1].T / 0.2, labels), cross_entropy(q[1] @ k[0].T / 0.2, labels)]
    return (both[0] + both[1]) / 2


def byol(m: ImageMethod, crops: list[Tensor]) -> Tensor:
    """Grill et al., eq. 2 and its symmetric twin; ours is a quarter of it, less 1."""
    p = [normalize(m.predictor(m.projector(m.encoder(x))), dim=1) for x in crops]
    with torch.no_grad():
        t = [normalize(m.target.module(x), dim=1) for x in crops]
    whole = (p[0] - t[1]).square().sum(dim=1) + (p[1] - t[0]).square().sum(dim=1)
    return whole.mean() / 4 - 1


def simsiam(m: ImageMethod, crops: list[Tensor]) -> Tensor:
    """Chen and He, algorithm 1."""
    z = [m.projector(m.encoder(x)) for x in crops]
    p = [m.predictor(rows) for rows in z]
    first = -cosine_similarity(p[0], z[1].detach()).mean()
    return first / 2 - cosine_similarity(p[1], z[0].detach()).mean() / 2


def barlow_twins(m: ImageMethod, crops: list[Tensor]) -> Tensor:
    """Zbontar et al., algorithm 1, standardised as their code does (batch normalisation)."""
    z = [m.projector(m.encoder(x)) for x in crops]
    a, b = ((x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt() for x in z)
    c = a.T @ b / len(a)
    off = c - torch.diag(c.diagonal())
    return (1 - c.diagonal()).square().sum() + 0.0051 * off.square().sum()


def vicreg(m: ImageMethod, crops: list[Tensor]) -> Tensor:
    """Bardes et al., their code: 25, 25, 1."""
    x, y = (m.projector(m.encoder(crop)) for crop in crops)
    n, d = x.shape
    loss = 25 * (x - y).square().mean()
    for z in (x, y):
        z = z - z.mean(dim=0)
        loss = loss + 25 * relu(1 - (z.var(dim=0) + 1e-4).sqrt()).mean() / 2
        c = z.T @ z / (n - 1)
        loss = loss + (c - torch.diag(c.diagonal())).square().sum() / d
    return loss


def dino(m: ImageMethod, crops: list[Tensor]) -> Tensor:
    """Caron et al., algorithm 1, temperatures .1 and .04 of the first step, all pairs but u = v."""
    n, large = len(crops[0]), torch.cat(crops[:2])
    with torch.no_grad():
        t = ((m.teacher.module(large) - m.middle) / 0.04).softmax(dim=1).split(n)
    features = [m.encoder(large), *([m.encoder(torch.cat(crops[2:]))] if crops[2:] else [])]
    s = (m.head(torch.cat(features)) / 0.1).log_softmax(dim=1).split(n)
    terms = [-(t[u] * s[v]).sum(1).mean() for u in range(2) for v in range(len(s)) if u != v]
    return torch.stack(terms).mean()


PAPERS: dict[str, Callable[[ImageMethod, list[Tensor]], Tensor]] = {
    "simclr": simclr,
    "mocov2": moco_v2,
    "mocov3": moco_v3,
    "byol": byol,
    "simsiam": simsiam,
    "barlowtwins": barlow_twins,
    "vicreg": vicreg,
    "dino": dino,
}
CASES = [(name, {}, norm) for name in METHODS for norm in (False, True)]
CASES += [("dino", {"local_crops": 3}, norm) for norm in (False, True)]
CASES += [("dino", {"batch_norm": True}, True)]
TARGETS = {"mocov2": "target", "mocov3": "target", "byol": "target", "dino": "teacher"}


def moved(name: str, **values: object) -> ImageMethod:
    """A method some steps later: averages, queue and centre are not what they were at first."""
    made = method(name, **values)
    for step in range(3):
        learn(made, step)
    made.step = 0
    return made


@pytest.mark.parametrize(("name", "options", "batch_norm"), CASES)
def test_loss_and_gradient_are_those_of_the_paper(
    name: str, options: dict, batch_norm: bool
) -> None:
    made = moved(name, options=options, batch_norm=batch_norm)
    other = twin(made)
    crops = [x.double() for x in made.crops(batch())]
    loss = made(batch())
    loss.backward()
    truth = PAPERS[name](other, crops)
    truth.backward()
    assert loss.item() == pytest.approx(truth.item(), rel=1e-10)
    found, expected = gradients(made), gradients(other)
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[k], expected[k], rtol=1e-8, atol=1e-12) for k in expected)
    assert any(g.abs().max() > 1e-4 for g in found.values())


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_targets_get_no_gradient_and_follow_after_the_step(name: str) -> None:
    made = moved(name, options={"decay": 0.9, **({"rising": False} if name != "mocov2" else {})})
    target = getattr(made, TARGETS[name])
    before = [p.clone() for p in target.parameters()]
    learn(made)
    heads = made.head if name == "dino" else made.projector
    online = [*made.encoder.parameters(), *heads.parameters()]
    assert not any(p.requires_grad or p.grad is not None for p in target.parameters())
    for mine, old, new in zip(target.parameters(), before, online, strict=True):
        assert torch.allclose(mine, 0.9 * old + 0.1 * new, rtol=1e-12, atol=1e-15)
    assert any(
        not torch.equal(mine, old) for mine, old in zip(target.parameters(), before, strict=True)
    )


@pytest.mark.parametrize("name", ["byol", "mocov3", "dino"])
def test_a_rising_decay_ends_at_one(name: str) -> None:
    made = moved(name, options={"decay": 0.9, "rising": True})
    target = getattr(made, TARGETS[name])
    for step, decay in ((0, 0.9), (10, 0.95), (20, 1.0)):
        twins = twin(made)
        after = getattr(twins, TARGETS[name])
        learn(twins, step)
        heads = twins.head if name == "dino" else twins.projector
        new = [*twins.encoder.parameters(), *heads.parameters()]
        for mine, old, online in zip(after.parameters(), target.parameters(), new, strict=True):
            assert torch.allclose(mine, decay * old + (1 - decay) * online, rtol=1e-12, atol=1e-15)


def test_simsiam_would_have_another_gradient_without_its_stop() -> None:
    made = moved("simsiam")
    crops = [x.double() for x in made.crops(batch())]
    made(batch()).backward()
    other = twin(made)
    other.zero_grad()
    z = [other.projector(other.encoder(x)) for x in crops]
    p = [other.predictor(rows) for rows in z]
    (-cosine_similarity(p[0], z[1]).mean() - cosine_similarity(p[1], z[0]).mean()).div(2).backward()
    found, live = gradients(made), gradients(other)
    assert any(not torch.allclose(found[k], live[k], rtol=1e-2) for k in live)


def test_the_queue_takes_the_keys_of_both_crops_in_order_and_forgets_the_oldest() -> None:
    made = method("mocov2")  # 16 rows, 12 keys a step
    fresh = made.queue.rows.clone()
    crops = [x.double() for x in made.crops(batch())]
    with torch.no_grad():
        keys = [normalize(made.target.module(x), dim=1).float() for x in crops]
    learn(made)
    assert torch.allclose(made.queue.rows[:12], torch.cat(keys))
    assert torch.equal(made.queue.rows[12:], fresh[12:])
    first = made.queue.rows.clone()
    learn(made, 1)
    assert torch.equal(made.queue.rows[8:12], first[8:12])
    assert not torch.isclose(made.queue.rows[:8], first[:8]).all(dim=1).any()


def test_an_asymmetric_queue_takes_the_keys_of_the_second_crop() -> None:
    made = method("mocov2", options={"symmetric": False})
    crops = [x.double() for x in made.crops(batch())]
    with torch.no_grad():
        keys = normalize(made.target.module(crops[1]), dim=1).float()
    assert len(made.views(crops)) == 1
    learn(made)
    assert torch.allclose(made.queue.rows[:6], keys)


def test_the_centre_is_a_moving_average_over_both_large_crops() -> None:
    made = method("dino", options={"centre": 0.8, "local_crops": 2})
    made.middle += 0.5
    large = torch.cat([x.double() for x in made.crops(batch())[:2]])
    mean = made.teacher(large).mean(dim=0)
    learn(made)
    assert torch.allclose(made.middle, 0.8 * torch.full_like(mean, 0.5) + 0.2 * mean, rtol=1e-12)


def test_the_teacher_warms_up_to_the_objectives_temperature() -> None:
    made = method("dino", options={"warmup": 0.5}, settings={"teacher_temperature": 0.06})
    expected = [0.04, 0.05, 0.06, 0.06]
    assert [made.temperature_at(s) for s in (0, 5, 10, 19)] == pytest.approx(expected)
    made.middle += 0.1
    made.step = 5
    crops = [x.double() for x in made.crops(batch())]
    t = made.teacher(torch.cat(crops))
    found = made.views(crops)[0].positives / made.objective.teacher_temperature
    assert torch.allclose(found, ((t - 0.1) / 0.05)[:6], rtol=1e-12)
    assert method("dino", options={"warmup": 0}).temperature_at(0) == 0.07


def test_the_prototypes_stay_in_the_first_epoch() -> None:
    made = method("dino", options={"frozen_epochs": 0.5})  # an epoch has 4 steps
    still = made.head.prototypes.weight.clone()
    for step, stays in ((0, True), (1, True), (2, False)):
        learn(made, step)
        assert torch.equal(made.head.prototypes.weight, still) is stays


def test_dinos_small_crops() -> None:
    cls = find_method("dino")
    for size, count, small in ((32, -1, []), (32, 2, [16, 16]), (96, 1, [48]), (96, -1, [48] * 8)):
        views = cls.augments_of(size, options_of("dino", {"local_crops": count}))
        assert [v.size for v in views] == [size, size, *small]
        assert all(v.scale == (0.05, 0.4) for v in views[2:])


def test_dino_takes_no_other_objective() -> None:
    with pytest.raises(InputError, match=r"choose another method for infonce"):
        method("dino", objective="infonce")


@pytest.mark.parametrize("name", registry.names())
def test_any_objective_trains_with_simclr(name: str) -> None:
    made = method("simclr", objective=name)
    learn(made)
    loss = made(batch())
    loss.backward()
    crops = [x.double() for x in made.crops(batch())]
    z, other = (made.projector(made.encoder(x)) for x in crops)
    assert loss.item() == pytest.approx(made.objective(z, other).item(), rel=1e-10)
    assert all(g.isfinite().all() for g in gradients(made).values())
    assert gradients(made).keys() == dict(made.named_parameters()).keys()


@pytest.mark.parametrize("name", registry.names())
def test_mocov2_takes_the_objectives_that_push_against_a_queue_alone(name: str) -> None:
    takes = registry.build(name).takes_negatives
    try:
        made = method("mocov2", objective=name)
    except InputError as error:
        assert "cannot be computed with only the negatives of a queue" in str(error)  # noqa: PT017
        assert not takes
        return
    assert takes
    learn(made)
    assert made(batch()).isfinite()


@pytest.mark.parametrize("name", METHODS)
def test_a_state_dict_restores_averages_queue_and_centre(name: str) -> None:
    made, other = moved(name, batch_norm=True), method(name, batch_norm=True)
    other.load_state_dict(made.state_dict())
    assert learn(made, 5) == learn(other, 5)
    assert learn(made, 6) == learn(other, 6)
    assert all(torch.equal(a, b) for a, b in zip(made.buffers(), other.buffers(), strict=True))


def test_mocov3_freezes_the_patch_projection_of_a_vision_transformer() -> None:
    from isotrope.encoders.image import ImageEncoder

    def learnt(frozen: bool) -> set[str]:
        vit = ImageEncoder.build("vit-tiny", width=9, image_size=8, seed=0)
        made = method("mocov3", encoder=vit, options={"frozen_patches": frozen})
        optimizer = made.optimizer()
        known = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return {n for n, p in made.encoder.named_parameters() if id(p) in known}

    missing = learnt(frozen=False) - learnt(frozen=True)
    assert len(missing) == 2
    assert all("patch_embeddings.projection" in name for name in missing)


def test_vicregs_invariance_is_a_mean_over_dimensions() -> None:
    cls = find_method("vicreg")
    options = options_of("vicreg", {"dimension": 50})
    assert cls.settings_of("vicreg", options)["sim_coeff"] == 0.5
    assert cls.settings_of("infonce", options) == {}


def test_byols_projections_can_be_normalised() -> None:
    last = method("byol", options={"last_norm": True}).projector[-1]
    assert isinstance(last, nn.BatchNorm1d)
    assert not last.affine
    assert isinstance(method("byol").projector[-1], nn.Linear)


@pytest.mark.parametrize(
    ("name", "options", "rate"),
    [
        ("simsiam", {"constant": True}, 0.1),
        ("simsiam", {"predictor_rate": 10}, 0.5),
        ("byol", {"predictor_rate": 10}, 0.5),
    ],
)
def test_a_predictor_has_a_learning_rate_of_its_own(
    name: str, options: dict[str, Any], rate: float
) -> None:
    made = method(name, options=options)
    optimizer = made.optimizer()
    made.step = 10
    made.before_update(made.step, optimizer)
    rates = {
        name: group["lr"]
        for name, p in made.named_parameters()
        for group in optimizer.param_groups
        if any(p is q for q in group["params"])
    }
    assert {r for n, r in rates.items() if n.startswith("predictor")} == {rate}
    assert {r for n, r in rates.items() if not n.startswith("predictor")} == {0.05}
