"""Augment: distributions of what is drawn, and what is done with it against a plain loop."""

import colorsys
import contextlib
import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from isotrope.core.errors import InputError
from isotrope.data.images.augment import RECIPES, Augment, AugmentDraws, two_views

STILL = Augment(size=32, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0, jitter_probability=0, grey=0)
EVERYTHING = Augment(
    size=24, scale=(0.08, 1.0), jitter=(0.8, 0.8, 0.8, 0.2), blur=0.5, solarize=0.5
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(n: int, height: int, width: int) -> Tensor:
    return torch.randint(0, 256, (n, 3, height, width), dtype=torch.uint8, generator=generator(9))


@pytest.mark.parametrize("bicubic", [False, True])
def test_nothing_drawn_is_the_image_over_255(bicubic: bool) -> None:
    images = noise(7, 32, 32)
    still = replace(STILL, bicubic=bicubic)
    views = still.apply(images, still.draw(7, generator()))
    assert torch.equal(views, images / 255)


def test_as_float_and_as_uint8() -> None:
    images = noise(16, 20, 28)
    draws = EVERYTHING.draw(16, generator())
    whole = EVERYTHING.apply(images, draws)
    torch.testing.assert_close(EVERYTHING.apply(images / 255, draws), whole, atol=2e-5, rtol=0)
    doubled = EVERYTHING.apply(images.double() / 255, draws)
    torch.testing.assert_close(doubled, whole, atol=2e-5, rtol=0)


# -- what is drawn ------------------------------------------------------------------------------


def plain_box(height: int, width: int, augment: Augment, dice: random.Random) -> tuple[int, ...]:
    """A crop by the description of RandomResizedCrop, one at a time."""
    for _ in range(10):
        area = height * width * dice.uniform(*augment.scale)
        ratio = math.exp(dice.uniform(*map(math.log, augment.ratio)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return dice.randint(0, height - h), dice.randint(0, width - w), h, w
    w, h = width, height
    if width / height < augment.ratio[0]:
        h = round(w / augment.ratio[0])
    elif width / height > augment.ratio[1]:
        w = round(h * augment.ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


def alike(x: NDArray[np.float64], y: NDArray[np.float64]) -> bool:
    return bool(stats.ks_2samp(x, y, method="asymp").pvalue > 1e-4)


@pytest.mark.parametrize(
    ("height", "width", "scale"),
    [(32, 32, (0.08, 1.0)), (96, 64, (0.2, 1.0)), (40, 90, (0.5, 1.0)), (5, 4, (0.05, 0.4))],
)
def test_crops_are_distributed_as_a_plain_loop_draws_them(
    height: int, width: int, scale: tuple[float, float]
) -> None:
    augment = Augment(size=16, scale=scale)
    n = 4000
    found = augment.boxes(augment.draw(n, generator()), height, width).double().numpy()
    dice = random.Random(1)
    plain = np.array([plain_box(height, width, augment, dice) for _ in range(n)], dtype=float)
    for column in range(4):
        assert alike(found[:, column], plain[:, column])
    assert alike(found[:, 2] * found[:, 3], plain[:, 2] * plain[:, 3])
    assert alike(found[:, 3] / found[:, 2], plain[:, 3] / plain[:, 2])
    assert (found[:, :2] >= 0).all()
    assert (found[:, 0] + found[:, 2] <= height).all()
    assert (found[:, 1] + found[:, 3] <= width).all()


def test_area_and_ratio_where_every_shape_fits() -> None:
    augment = Augment(size=16, scale=(0.1, 0.5))  # at most sqrt(.5 * 4 / 3) = .82 of a side
    boxes = augment.boxes(augment.draw(20_000, generator()), 512, 512).double()
    area, ratio = boxes[:, 2] * boxes[:, 3] / 512**2, boxes[:, 3] / boxes[:, 2]
    assert area.mean() == pytest.approx(0.3, abs=0.003)
    assert area.std() == pytest.approx(0.4 / math.sqrt(12), abs=0.002)
    assert ratio.log().mean() == pytest.approx(0, abs=0.005)
    assert ratio.log().std() == pytest.approx(2 * math.log(4 / 3) / math.sqrt(12), abs=0.003)


@pytest.mark.parametrize(
    ("height", "width", "middle"),
    [(10, 40, [0, 13, 10, 13]), (40, 10, [13, 0, 13, 10]), (1, 1, [0, 0, 1, 1])],
)
def test_middle_of_the_image_where_no_shape_fits(
    height: int, width: int, middle: list[int]
) -> None:
    augment = Augment(size=16, scale=(0.9, 1.0))
    boxes = augment.boxes(augment.draw(5, generator()), height, width)
    assert boxes.tolist() == [middle] * 5


def test_shares_and_ranges() -> None:
    n = 20_000
    augment = replace(EVERYTHING, flip=0.5, grey=0.2, blur=0.1, solarize=0.2)
    draws = augment.draw(n, generator())
    for column, share in (
        (draws.flip, 0.5),
        (draws.grey, 0.2),
        (draws.sigma > 0, 0.1),
        (draws.solarize, 0.2),
        (draws.factors[:, 0] != 1, 0.8),
    ):
        assert column.double().mean() == pytest.approx(share, abs=0.012)
    changed = draws.factors != torch.tensor([1.0, 1, 1, 0])
    assert (changed == changed[:, :1]).all()  # together
    shades, hue = draws.factors[changed[:, 0]].double().split([3, 1], dim=1)
    for column in shades.T:
        assert stats.kstest(column, stats.uniform(0.2, 1.6).cdf).pvalue > 1e-4
    assert stats.kstest(hue[:, 0], stats.uniform(-0.2, 0.4).cdf).pvalue > 1e-4
    sigma = draws.sigma[draws.sigma > 0].double()
    assert stats.kstest(sigma, stats.uniform(0.1, 1.9).cdf).pvalue > 1e-4
    places = draws.order @ torch.tensor([64, 16, 4, 1])
    counts = places.unique(return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-4


def test_strength_above_one_ends_at_zero() -> None:
    factors = Augment(size=8, jitter=(1.5, 0, 0, 0.5)).draw(5000, generator()).factors
    assert 0 <= factors[:, 0].min() < 0.01
    assert 2.49 < factors[:, 0].max() <= 2.5
    assert (factors[:, 1:3] == 1).all()
    assert factors[:, 3].abs().max() <= 0.5


def test_changes_apart_are_independent_and_in_order() -> None:
    draws = two_views("p3", 32)[0].draw(20_000, generator())
    assert torch.equal(draws.order, torch.arange(4).expand(20_000, 4))
    changed = (draws.factors != torch.tensor([1.0, 1, 1, 0])).double()
    assert changed.mean(0).tolist() == pytest.approx([0.8] * 4, abs=0.012)
    assert (changed.T.corrcoef() - torch.eye(4)).abs().max() < 0.03
    assert changed.prod(1).mean() == pytest.approx(0.8**4, abs=0.012)


def test_draws_depend_on_the_generator_only() -> None:
    first, again, other = (EVERYTHING.draw(50, generator(seed)) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.areas, other.areas)
    # as many numbers whatever the settings: views drawn afterwards stay the same
    ends = []
    for augment in (STILL, EVERYTHING, two_views("p3", 32)[0]):
        dice = generator()
        augment.draw(50, dice)
        ends.append(torch.rand(1, generator=dice).item())
    assert len(set(ends)) == 1


# -- what is done with it -----------------------------------------------------------------------


def plain_view(image: Tensor, augment: Augment, draws: AugmentDraws) -> Tensor:
    """One view of one image in float64, step by step; without blur."""
    top, left, height, width = augment.boxes(draws, *image.shape[1:])[0].tolist()
    crop = image[None, :, top : top + height, left : left + width].double() / 255
    size = (augment.size, augment.size)
    view = F.interpolate(crop, size=size, mode="bilinear", antialias=True)[0]
    view = view.flip(2) if draws.flip[0] else view
    for kind in draws.order[0].tolist():
        f = draws.factors[0, kind].item()
        luma = 0.299 * view[0] + 0.587 * view[1] + 0.114 * view[2]
        if kind == 0:
            view = (f * view).clamp(0, 1)
        elif kind == 1:
            view = (f * view + (1 - f) * luma.mean()).clamp(0, 1)
        elif kind == 2:
            view = (f * view + (1 - f) * luma).clamp(0, 1)
        else:
            turned = []
            for colour in view.flatten(1).T.tolist():
                h, s, v = colorsys.rgb_to_hsv(*colour)
                turned.append(colorsys.hsv_to_rgb((h + f) % 1, s, v))
            view = torch.tensor(turned, dtype=torch.float64).T.reshape(view.shape)
    if draws.grey[0]:
        view = (0.299 * view[0] + 0.587 * view[1] + 0.114 * view[2]).expand_as(view)
    return torch.where(view >= 0.5, 1 - view, view) if draws.solarize[0] else view


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (20, 45)])
def test_views_are_those_of_a_plain_loop(height: int, width: int, together: bool) -> None:
    n = 12
    augment = replace(EVERYTHING, blur=0, solarize=0.2, jitter_together=together)
    images = F.interpolate(noise(n, height // 4, width // 4).float(), (height, width)).byte()
    draws = augment.draw(n, generator(5))
    found = augment.apply(images, draws)
    for i in range(n):
        expected = plain_view(images[i], augment, draws.rows(slice(i, i + 1)))
        off = (found[i].double() - expected).abs()
        # a value just at one half may fall on the other side of it, which solarising keeps small
        assert off.max() < 2e-4


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("size", [32, 96])
def test_rows_of_the_batch_are_those_of_its_parts(name: str, size: int) -> None:
    images = noise(9, size, size)
    for augment in set(two_views(name, size)):
        draws = augment.draw(9, generator())
        whole = augment.apply(images, draws)
        parts = [slice(0, 5), slice(5, 9)]
        halves = [augment.apply(images[part], draws.rows(part)) for part in parts]
        torch.testing.assert_close(torch.cat(halves), whole, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(5, 9), (1, 1), (70, 13)])
def test_any_shape_of_image(height: int, width: int) -> None:
    views = EVERYTHING.apply(noise(20, height, width), EVERYTHING.draw(20, generator()))
    assert views.shape == (20, 3, 24, 24)
    assert views.dtype == torch.float32
    assert views.is_contiguous(memory_format=torch.channels_last)
    assert views.min() >= 0
    assert views.max() <= 1
    assert torch.isfinite(views).all()


def test_what_the_cubic_filter_overshoots_is_cut_off() -> None:
    edges = torch.tensor([0, 255], dtype=torch.uint8).repeat(6).expand(8, 3, 12, 12)
    plain = replace(EVERYTHING, bicubic=True, jitter=(0, 0, 0, 0), grey=0, blur=0, solarize=0)
    views = plain.apply(edges, plain.draw(8, generator()))
    assert (views.min(), views.max()) == (0, 1)


def test_images_and_draws_are_left_as_they_are() -> None:
    images = noise(6, 24, 24) / 255
    draws = EVERYTHING.draw(6, generator())
    kept_images, kept_draws = images.clone(), [x.clone() for x in draws]
    EVERYTHING.apply(images, draws)
    assert torch.equal(images, kept_images)
    assert all(torch.equal(a, b) for a, b in zip(draws, kept_draws, strict=True))


def test_autocast_does_not_coarsen_the_pixels() -> None:
    images, draws = noise(6, 24, 24), EVERYTHING.draw(6, generator())
    whole = EVERYTHING.apply(images, draws)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(EVERYTHING.apply(images, draws), whole)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_images_may_be_elsewhere_than_the_draws(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the meta device refuses tensors of another, as a GPU would; it knows no autocast
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    augment = replace(EVERYTHING, blur=0, bicubic=True)
    images = torch.zeros(9, 3, 20, 30, dtype=dtype, device="meta")
    views = augment.apply(images, augment.draw(9, generator()))
    assert views.device.type == "meta"
    assert views.shape == (9, 3, 24, 24)


# -- recipes ------------------------------------------------------------------------------------

STRONG, HALF, GENTLE = (0.8, 0.8, 0.8, 0.2), (0.4, 0.4, 0.4, 0.1), (0.4, 0.4, 0.2, 0.1)


@pytest.mark.parametrize(
    ("name", "size", "scale", "jitter", "blur", "solarize"),
    [
        ("simclr", 32, 0.08, HALF, (0, 0), (0, 0)),
        ("simclr", 224, 0.08, STRONG, (0.5, 0.5), (0, 0)),
        ("p3", 32, 0.2, HALF, (0, 0), (0, 0)),
        ("p3", 128, 0.2, STRONG, (0, 0), (0, 0)),
        ("mocov2", 32, 0.2, HALF, (0, 0), (0, 0)),
        ("simsiam", 224, 0.2, HALF, (0.5, 0.5), (0, 0)),
        ("byol", 32, 0.08, GENTLE, (0, 0), (0, 0.2)),
        ("byol", 224, 0.08, GENTLE, (1, 0.1), (0, 0.2)),
        ("barlow", 224, 0.08, GENTLE, (1, 0.1), (0, 0.2)),
        ("mocov3", 224, 0.2, GENTLE, (1, 0.1), (0, 0.2)),
        ("vicreg", 224, 0.08, GENTLE, (0.5, 0.5), (0.1, 0.1)),
        ("dino", 224, 0.4, GENTLE, (1, 0.1), (0, 0.2)),
    ],
)
def test_numbers_of_the_papers(
    name: str,
    size: int,
    scale: float,
    jitter: tuple[float, ...],
    blur: tuple[float, float],
    solarize: tuple[float, float],
) -> None:
    pair = two_views(name, size)[:2]
    assert {view.size for view in pair} == {size}
    assert {view.scale for view in pair} == {(scale, 1.0)}
    assert all(view.jitter == pytest.approx(jitter) for view in pair)
    assert tuple(view.blur for view in pair) == blur
    assert tuple(view.solarize for view in pair) == solarize
    assert {(view.flip, view.grey, view.jitter_probability) for view in pair} == {(0.5, 0.2, 0.8)}
    assert {view.jitter_together for view in pair} == {name != "p3"}
    assert {view.bicubic for view in pair} == {name in {"byol", "barlow", "vicreg", "dino"}}


def test_local_crops() -> None:
    views = two_views("dino", 224)
    assert [view.size for view in views] == [224] * 2 + [96] * 8
    assert {view.scale for view in views[2:]} == {(0.05, 0.4)}
    assert {(view.blur, view.solarize) for view in views[2:]} == {(0.5, 0.0)}
    assert two_views("dino", 96)[2].size == 48
    assert len(two_views("dino", 32)) == 2


# -- what a user can get wrong ------------------------------------------------------------------


def test_refuses_an_unknown_recipe() -> None:
    with pytest.raises(InputError, match=r"called 'moco' \(did you mean 'mocov\d'\?\); known"):
        two_views("moco", 32)
