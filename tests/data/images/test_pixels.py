"""Pixels: crops against PIL and torch, colours against PIL and colorsys, blur against scipy."""

import colorsys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageOps
from scipy.ndimage import gaussian_filter
from torch import Tensor

from isotrope.data.images import pixels


def drawn(n: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Images with edges: blocks of random colours, and noise."""
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (n, 3, height // 4 + 1, width // 4 + 1), generator=generator)
    blocks = blocks.repeat_interleave(4, 2).repeat_interleave(4, 3)[..., :height, :width]
    noise = torch.randint(0, 40, (n, 3, height, width), generator=generator)
    return (blocks * 0.85 + noise).clamp(0, 255).to(torch.uint8)


def pictures(images: Tensor) -> list[Image.Image]:
    return [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]


def values(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).double()


# upright, lying, downsized in one direction, a single pixel, a whole image
BOXES = torch.tensor(
    [[3, 5, 17, 9], [0, 0, 6, 31], [2, 1, 40, 12], [20, 7, 1, 1], [0, 0, 48, 36], [47, 35, 1, 1]]
)


@pytest.mark.parametrize("size", [1, 8, 32, 57])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_crop_is_that_of_torch_and_of_pil(mode: str, size: int) -> None:
    images = drawn(len(BOXES), 48, 36) // 2 + 64  # PIL cuts off between the two directions
    mirrored = torch.arange(len(BOXES)) % 2 == 0
    found = pixels.resized_crops(images, BOXES, mirrored, size, bicubic=mode == "bicubic")
    assert found.shape == (len(BOXES), 3, size, size)
    resample = Image.Resampling[mode.upper()]
    for i, (top, left, height, width) in enumerate(BOXES.tolist()):
        crop = images[i : i + 1, :, top : top + height, left : left + width].double()
        expected = F.interpolate(crop, size=(size, size), mode=mode, antialias=True)[0]
        unmirrored = found[i].flip(2) if mirrored[i] else found[i]
        torch.testing.assert_close(unmirrored.double(), expected, atol=1e-3, rtol=0)
        box = (left, top, left + width, top + height)
        resized = values(pictures(images)[i].crop(box).resize((size, size), resample))
        # PIL rounds to whole numbers after either direction
        assert (unmirrored.double() - resized).abs().max() < 1.5


@pytest.mark.parametrize("bicubic", [False, True])
def test_whole_image_in_its_own_size_is_itself(bicubic: bool) -> None:
    images = drawn(2, 33, 33)
    whole = torch.tensor([[0, 0, 33, 33]] * 2)
    found = pixels.resized_crops(images, whole, torch.tensor([False, True]), 33, bicubic=bicubic)
    assert torch.equal(found[0], images[0].float())
    assert torch.equal(found[1], images[1].flip(2).float())


@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0, 1.7])
@pytest.mark.parametrize("name", ["Brightness", "Contrast", "Color"])
def test_blends_are_those_of_pil(name: str, factor: float) -> None:
    images = drawn(4, 20, 24)
    found = images.double() / 255
    chosen = [torch.full((4,), name == kind) for kind in ("Contrast", "Color")]
    pixels.blend(found, torch.full((4,), factor), *chosen)
    for image, picture in zip(found, pictures(images), strict=True):
        enhanced = values(getattr(ImageEnhance, name)(picture).enhance(factor))
        # PIL rounds the grey of a pixel, the mean, and the result
        assert (255 * image - enhanced).abs().max() < 1.6


def test_every_image_is_blended_its_own_way() -> None:
    images = drawn(5, 8, 8).double() / 255
    factor = torch.tensor([1.0, 0.5, 1.4, 0.2, 2.0])
    contrast = torch.tensor([False, False, True, False, True])
    saturation = torch.tensor([False, False, False, True, False])
    found = images.clone()
    pixels.blend(found, factor, contrast, saturation)
    assert torch.equal(found[0], images[0])
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)[:, None, None]
    for i in range(1, 5):
        luma = (images[i] * weights).sum(0)
        other = luma.mean() * contrast[i] + luma * saturation[i]
        f = factor[i].double()
        expected = (f * images[i] + (1 - f) * other).clamp(0, 1)
        torch.testing.assert_close(found[i], expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize("turn", [-0.5, -0.13, 0.0, 0.1, 0.25, 0.5])
def test_hue_is_that_of_colorsys(turn: float) -> None:
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 0.5, 1.0])] * 3).double()  # grey, pure
    colours = torch.cat([corners, torch.rand(230, 3, dtype=torch.float64)])
    found = pixels.turn_hue(colours.T.reshape(1, 3, 1, -1), torch.tensor([turn]).double())
    for before, after in zip(colours.tolist(), found[0, :, 0].T.tolist(), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*before)
        assert after == pytest.approx(colorsys.hsv_to_rgb((h + turn) % 1, s, v), abs=1e-6)


def test_grey_and_solarised_are_those_of_pil() -> None:
    images = drawn(3, 16, 16)
    for i, picture in enumerate(pictures(images)):
        one = images[i : i + 1].float() / 255
        luma = torch.tensor(np.array(picture.convert("L")))
        assert (255 * pixels.grey(one)[0, 0] - luma).abs().max() < 0.51
        turned = values(ImageOps.solarize(picture))
        torch.testing.assert_close(
            255 * pixels.solarize(one)[0].double(), turned, atol=1e-4, rtol=0
        )


def test_blur_is_that_of_scipy_for_each_width() -> None:
    images = drawn(3, 24, 18).float() / 255
    sigma = torch.tensor([0.1, 0.9, 2.0])
    found = pixels.blur(images, sigma, 6)
    for image, blurred, width in zip(images, found, sigma.tolist(), strict=True):
        expected = gaussian_filter(
            image.double().numpy(), (0, width, width), mode="mirror", radius=(0, 6, 6)
        )
        np.testing.assert_allclose(blurred.numpy(), expected, atol=1e-5)


def test_blur_of_an_image_smaller_than_its_window() -> None:
    images = drawn(2, 3, 5).float() / 255
    found = pixels.blur(images, torch.tensor([0.5, 2.0]), 6)
    assert found.shape == images.shape
    assert torch.isfinite(found).all()
    dot = pixels.blur(images[:, :, :1, :1], torch.tensor([0.5, 2.0]), 6)
    torch.testing.assert_close(dot, images[:, :, :1, :1])
