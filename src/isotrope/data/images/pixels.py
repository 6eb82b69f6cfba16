"""Crops, recolours and blurs whole batches of images with given random numbers.

Images are RGB in [0, 1], float, n x 3 x height x width, unless a function says otherwise.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as in PIL's mode "L"


def resized_crops(
    images: Tensor, boxes: Tensor, mirrored: Tensor, size: int, *, bicubic: bool = False
) -> Tensor:
    """Cut a box out of every image, mirror the chosen crops, and resize all crops to one size.

    As in PIL's ``crop`` followed by ``resize``, the filter is wider if a crop is larger than
    ``size``, and ignores pixels outside the box. Return float32, n x 3 x size x size, not rounded.

    Args:
        images: Images of any dtype and range, n x 3 x height x width.
        boxes: Top, left, height and width of each box, int64, n x 4.
        mirrored: Whether each image is mirrored, n booleans.
        size: Height and width of the result.
        bicubic: Whether to use PIL's cubic filter. Its results may be outside the range of the
            image. If False, the filter is linear.
    """
    n, _, height, width = images.shape
    top, left, tall, wide = boxes.unbind(1)
    down = _weights(top, tall, torch.zeros_like(mirrored), height, size, bicubic)
    across = _weights(left, wide, mirrored, width, size, bicubic)
    crops = torch.empty(n, 3, size, size, device=images.device)
    for channel in range(3):
        rows = torch.bmm(down, images[:, channel].float())
        torch.bmm(rows, across.mT, out=crops[:, channel])
    return crops


def _weights(
    start: Tensor, length: Tensor, mirrored: Tensor, source: int, size: int, bicubic: bool
) -> Tensor:
    """Return how much each source pixel of a line adds to each new pixel, n x size x source."""
    scale = (length / size)[:, None]
    places = torch.arange(size, device=start.device) + 0.5
    places = torch.where(mirrored[:, None], size - places, places)
    centres = start[:, None] + places * scale  # n x size, in pixels of the image
    pixels = torch.arange(source, device=start.device) + 0.5
    distance = ((pixels - centres[:, :, None]) / scale.clamp(min=1)[:, :, None]).abs_()
    weights = _cubic(distance) if bicubic else (1 - distance).clamp_(min=0)
    inside = (pixels > start[:, None]) & (pixels < (start + length)[:, None])
    weights *= inside[:, None]
    return weights / weights.sum(2, keepdim=True)


def _cubic(t: Tensor) -> Tensor:
    near = (1.5 * t - 2.5) * t * t + 1
    far = ((2.5 - 0.5 * t) * t - 4) * t + 2
    return torch.where(t < 1, near, torch.where(t < 2, far, 0))


def grey(images: Tensor) -> Tensor:
    """Return the grey value (luma) of every pixel, n x 1 x height x width."""
    red, green, blue = images.split(1, dim=1)
    luma: Tensor = (red * _LUMA[0]).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2])
    return luma


def blend(images: Tensor, factor: Tensor, contrast: Tensor, saturation: Tensor) -> None:
    """Change the brightness, contrast or saturation of every image, in place.

    The result is ``factor * image + (1 - factor) * other``, cut off at 0 and 1 (as in
    PIL.ImageEnhance). Here ``other`` is black for brightness, the mean grey of the image for
    contrast, and the grey image for saturation.

    Args:
        images: Images to change, n x 3 x height x width.
        factor: Factor of each image, n values; 1 changes nothing.
        contrast: Whether the contrast of each image is changed, n booleans.
        saturation: Whether the saturation of each image is changed, n booleans. If both are False,
            the brightness is changed.
    """
    by_image = (factor, contrast, saturation)
    factor, of_mean, of_grey = (x.to(images.dtype)[:, None, None] for x in by_image)
    luma = grey(images)[:, 0]
    mean = luma.mean((1, 2), keepdim=True)
    other = luma.mul_((1 - factor) * of_grey).add_((1 - factor) * of_mean * mean)
    images.mul_(factor[:, None]).add_(other[:, None]).clamp_(0, 1)


def turn_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Return the images with all hues turned. The value and chroma of each pixel do not change.

    The colour model is hexagonal HSV with the value V, the chroma C and the hue h in [0, 6). Then
    red is V - C [2 - |h - 3|], green is V - C [|h - 2| - 1] and blue is V - C [|h - 4| - 1]. Square
    brackets clip a number to [0, 1]. A grey pixel has the chroma 0 and does not change.

    Args:
        images: Images, n x 3 x height x width.
        turns: Rotation of each image's hues, n values, in turns of the wheel: 1/3 makes red green.
    """
    r, g, b = images.unbind(1)
    high, low = images.amax(1), images.amin(1)
    chroma = high - low
    per_chroma = chroma.clamp(min=1e-8).reciprocal_()
    hue = torch.where(
        r == high,
        (g - b) * per_chroma,
        torch.where(g == high, (b - r) * per_chroma + 2, (r - g) * per_chroma + 4),
    )
    hue += 6 * turns[:, None, None]
    hue.sub_((hue / 6).floor_(), alpha=6)  # several times as fast as torch.remainder
    brackets = (2 - (hue - 3).abs_(), (hue - 2).abs_() - 1, (hue - 4).abs_() - 1)
    turned = torch.empty_like(images)
    for channel, bracket in zip(turned.unbind(1), brackets, strict=True):
        torch.addcmul(high, chroma, bracket.clamp_(0, 1), value=-1, out=channel)
    return turned


def blur(images: Tensor, sigma: Tensor, radius: int) -> Tensor:
    """Blur each image with a Gaussian. Outside its borders, an image is continued by mirroring.

    Args:
        images: Images, n x 3 x height x width.
        sigma: Standard deviation of each Gaussian in pixels, n values above 0.
        radius: Radius of the window in pixels. A larger radius than the image allows is reduced.
    """
    n, channels, height, width = images.shape
    radius = min(radius, height - 1, width - 1)
    places = torch.arange(-radius, radius + 1, dtype=sigma.dtype, device=sigma.device)
    kernel = torch.exp(-(places**2) / (2 * sigma[:, None] ** 2))
    kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(channels, 0)[:, None]
    padded = F.pad(images, (radius,) * 4, mode="reflect").flatten(0, 1)[None]
    along = F.conv2d(padded, kernel[:, :, None], groups=n * channels)
    return F.conv2d(along, kernel[..., None], groups=n * channels).view_as(images)


def solarize(images: Tensor) -> Tensor:
    """Return the images with 1 - x in place of each value x of 1/2 or more."""
    return torch.where(images < 0.5, images, 1 - images)
