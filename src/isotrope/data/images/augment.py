"""Augments whole batches of images: random crops, changes of colour, and blur.

An :class:`Augment` makes one view of every image; :func:`two_views` returns the augmentations of
published recipes. :meth:`Augment.draw` draws the random numbers of the whole batch on the CPU.
:meth:`Augment.apply` changes only the images that one process holds, on the device of the images.

The changes have the order, ranges and distributions of torchvision: crop and flip, colour jitter,
grey, blur, solarisation. A jitter of strength b draws the factor of brightness, contrast or
saturation uniformly from [max(0, 1 - b), 1 + b]. A jitter of strength h turns the hue by a share of
the colour wheel, drawn uniformly from [-h, h].
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from isotrope.core.errors import InputError, unknown
from isotrope.data.images import pixels

_TRIES = 10  # number of random crops to try before the centre of the image is taken
_CONTRAST, _SATURATION, _HUE = 1, 2, 3  # positions in ``jitter``; brightness has position 0
_SMALL = 64  # pixels: up to this size, the CIFAR version of a recipe is used
_GENTLE = (0.4, 0.4, 0.2, 0.1)


class AugmentDraws(NamedTuple):
    """All random numbers of n images on the CPU, with one row for each image.

    Attributes:
        areas: Areas of ten candidate crops of each image, as shares of the image's area, n x 10.
        ratios: Width / height of each candidate crop, n x 10.
        places: Vertical and horizontal place of the crop, n x 2; 0 is the top or left edge, 1 the
            other edge.
        flip: Whether each image is mirrored horizontally, n booleans.
        order: Order of the four changes of colour, as columns of ``factors``, int64, n x 4.
        factors: Factors of brightness, contrast and saturation (1 changes nothing) and the turn of
            the hue (0 changes nothing), n x 4.
        grey: Whether each image is converted to grey, n booleans.
        sigma: Standard deviation of each image's blur in pixels, n values; 0 for no blur.
        solarize: Whether each image is solarised (:attr:`Augment.solarize`), n booleans.
    """

    areas: Tensor
    ratios: Tensor
    places: Tensor
    flip: Tensor
    order: Tensor
    factors: Tensor
    grey: Tensor
    sigma: Tensor
    solarize: Tensor

    def rows(self, part: slice) -> "AugmentDraws":
        """Return the draws for the images in ``part``."""
        return AugmentDraws(*(x[part] for x in self))


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Settings of the random changes that make one view of every image of a batch.

    Attributes:
        size: Height and width of the view, in pixels.
        scale: Smallest and largest area of the crop, as shares of the image's area.
        ratio: Smallest and largest width / height of the crop. The logarithm of width / height is
            drawn uniformly.
        bicubic: Whether to resize with PIL's cubic filter. If False, the filter is linear.
        flip: Probability of mirroring.
        jitter: Strengths of the changes of brightness, contrast, saturation and hue.
        jitter_probability: Probability of the jitter.
        jitter_together: If True, an image gets all four changes in random order, or none of them,
            as in torchvision's ``RandomApply([ColorJitter])``. If False, each change has the
            probability ``jitter_probability``, and brightness comes first, then contrast,
            saturation and hue, as in the code of Draganov et al., 2025.
        grey: Probability of converting to grey.
        blur: Probability of a Gaussian blur.
        blur_sigma: Smallest and largest standard deviation of the blur, in pixels.
        solarize: Probability of solarisation: values x of 1/2 or more become 1 - x.
    """

    size: int
    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    bicubic: bool = False
    flip: float = 0.5
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    jitter_probability: float = 0.8
    jitter_together: bool = True
    grey: float = 0.2
    blur: float = 0.0
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    solarize: float = 0.0

    def draw(self, n: int, generator: torch.Generator) -> AugmentDraws:
        """Draw all random numbers for n images. How many are drawn depends only on n."""

        def uniform(columns: int, low: float = 0.0, high: float = 1.0) -> Tensor:
            return low + (high - low) * torch.rand(n, columns, generator=generator)

        areas = uniform(_TRIES, *self.scale)
        ratios = uniform(_TRIES, *(math.log(x) for x in self.ratio)).exp()
        places = uniform(2)
        flip, grey, blurred, solarize = uniform(4).T
        order, jittered = uniform(4).argsort(1), uniform(4) < self.jitter_probability
        if self.jitter_together:
            jittered = jittered[:, :1]
        else:
            order = torch.arange(4).expand(n, 4)
        ranges = [(max(0.0, 1 - b), 1 + b) for b in self.jitter[:_HUE]]
        ranges.append((-self.jitter[_HUE], self.jitter[_HUE]))
        factors = torch.cat([uniform(1, *ends) for ends in ranges], dim=1)
        return AugmentDraws(
            areas=areas,
            ratios=ratios,
            places=places,
            flip=flip < self.flip,
            order=order,
            factors=torch.where(jittered, factors, torch.tensor([1.0, 1.0, 1.0, 0.0])),
            grey=grey < self.grey,
            sigma=uniform(1, *self.blur_sigma)[:, 0] * (blurred < self.blur),
            solarize=solarize < self.solarize,
        )

    def boxes(self, draws: AugmentDraws, height: int, width: int) -> Tensor:
        """Return the top, left, height and width of each crop, int64, n x 4.

        The crop is the first candidate (area and ratio) that fits into the image. If none fits, it
        is the largest box with an allowed ratio, at the centre of the image.
        """
        area = draws.areas * (height * width)
        shapes = torch.stack([area / draws.ratios, area * draws.ratios], 2).sqrt().round().long()
        bounds = torch.tensor([height, width], device=area.device)
        fits = ((shapes > 0) & (shapes <= bounds)).all(2)
        first = fits.int().argmax(1)
        low, high = self.ratio
        tallest, widest = min(height, round(width / low)), min(width, round(height * high))
        shape = torch.where(
            fits.any(1)[:, None],
            shapes[torch.arange(len(first), device=area.device), first],
            torch.tensor([tallest, widest], device=area.device),
        )
        room = bounds - shape
        corner = torch.where(fits.any(1)[:, None], (draws.places * (room + 1)).long(), room // 2)
        return torch.cat([corner, shape], dim=1)

    @torch.no_grad()
    def apply(self, images: Tensor, draws: AugmentDraws) -> Tensor:
        """Return a view of each image, float32 n x 3 x size x size, with values in [0, 1].

        Args:
            images: Images on any device, n x 3 x height x width, uint8, or float in [0, 1].
            draws: Random numbers for these images, on the CPU.
        """
        device = images.device
        with torch.autocast(device.type, enabled=False):
            boxes = self.boxes(draws, *images.shape[2:]).to(device)
            views = pixels.resized_crops(
                images, boxes, draws.flip.to(device), self.size, bicubic=self.bicubic
            )
            if not images.is_floating_point():
                views.div_(255)
            views.clamp_(0, 1)
            if any(self.jitter):
                _jitter(views, draws)
            _change(views, draws.grey, pixels.grey)
            # the window has a radius of three times the largest sigma that can be drawn
            blur = partial(pixels.blur, radius=math.ceil(3 * self.blur_sigma[1]))
            _change(views, draws.sigma > 0, blur, draws.sigma)
            _change(views, draws.solarize, pixels.solarize)
        return views.contiguous(memory_format=torch.channels_last)


def _change(views: Tensor, chosen: Tensor, change: Callable[..., Tensor], *numbers: Tensor) -> None:
    """Change the chosen rows in place; ``numbers`` hold arguments of ``change`` for every row."""
    rows = chosen.nonzero()[:, 0]
    if len(rows):
        there = rows.to(views.device)
        changed = change(views.index_select(0, there), *(x[rows].to(views.device) for x in numbers))
        views[there] = changed


def _jitter(views: Tensor, draws: AugmentDraws) -> None:
    """Change the colours in place, in the order drawn for each image."""
    for kind in draws.order.T:
        drawn = draws.factors.gather(1, kind[:, None])[:, 0]
        of_hue = kind == _HUE
        shades = (torch.where(of_hue, 1, drawn), kind == _CONTRAST, kind == _SATURATION)
        pixels.blend(views, *(x.to(views.device) for x in shades))
        _change(views, of_hue & (drawn != 0), pixels.turn_hue, drawn)


def _simclr(size: int) -> tuple[Augment, ...]:
    """SimCLR; up to 64 pixels, it has half the jitter and no blur.

    These are the settings of SimCLR's appendix B.9. They are also those of the CIFAR-10 benchmark
    of the library ``lightly``, which Manna et al. (2023) name (cj_strength 0.5, gaussian_blur 0).
    """
    half = size <= _SMALL
    jitter = (0.4, 0.4, 0.4, 0.1) if half else (0.8, 0.8, 0.8, 0.2)
    view = Augment(size=size, scale=(0.08, 1.0), jitter=jitter, blur=_blur(size, 0.5))
    return view, view


def _p3(size: int) -> tuple[Augment, ...]:
    """The code of Draganov et al., 2025; up to 64 pixels, it has half the jitter."""
    s = 0.5 if size <= _SMALL else 1.0
    view = Augment(size=size, jitter=(0.8 * s, 0.8 * s, 0.8 * s, 0.2 * s), jitter_together=False)
    return view, view


def _moco_v2(size: int) -> tuple[Augment, ...]:
    """MoCo v2 (its released code, ``--aug-plus``) and SimSiam (appendix A): the same numbers."""
    view = Augment(size=size, blur=_blur(size, 0.5))
    return view, view


def _byol(size: int) -> tuple[Augment, ...]:
    """BYOL, appendix B, table 6; Barlow Twins (section 2.2) uses the same."""
    view = Augment(size=size, scale=(0.08, 1.0), jitter=_GENTLE, bicubic=True)
    return replace(view, blur=_blur(size, 1.0)), replace(view, blur=_blur(size, 0.1), solarize=0.2)


def _moco_v3(size: int) -> tuple[Augment, ...]:
    """MoCo v3's released code: as BYOL, with crops of 1/5 of the area or more, resized linearly."""
    return tuple(replace(view, scale=(0.2, 1.0), bicubic=False) for view in _byol(size))


def _vicreg(size: int) -> tuple[Augment, ...]:
    """VICReg, appendix C.1: as BYOL, with the same blur and solarisation for both views."""
    view = replace(_byol(size)[0], blur=_blur(size, 0.5), solarize=0.1)
    return view, view


def _dino(size: int) -> tuple[Augment, ...]:
    """DINO's released code: two global crops, and eight local crops of about 3/7 of their size.

    Up to 64 pixels there are no local crops, as in the CIFAR-10 benchmark of the library lightly.
    """
    pair = tuple(replace(view, scale=(0.4, 1.0)) for view in _byol(size))
    if size <= _SMALL:
        return pair
    return *pair, *[replace(small_crop(pair[0]), blur=0.5)] * 8


def _blur(size: int, probability: float) -> float:
    """Return the probability of blur; it is 0 for small images (SimCLR, appendix B.9)."""
    return 0.0 if size <= _SMALL else probability


RECIPES: dict[str, Callable[[int], tuple[Augment, ...]]] = {
    "simclr": _simclr,
    "p3": _p3,
    "mocov2": _moco_v2,
    "mocov3": _moco_v3,
    "byol": _byol,
    "simsiam": _moco_v2,
    "barlow": _byol,
    "vicreg": _vicreg,
    "dino": _dino,
}
"""Published recipes by name. Each is a function from the size of the views to the augmentations."""


def small_crop(view: Augment) -> Augment:
    """Return a large crop's augmentation for a small crop, as in DINO's released code.

    Its size is about 3/7 of the large crop's, and a multiple of 16 (a vision transformer's patch).
    """
    return replace(view, size=16 * max(1, round(view.size * 3 / 7 / 16)), scale=(0.05, 0.4))


def two_views(name: str, size: int) -> tuple[Augment, ...]:
    """Return a recipe's two augmentations; ``"dino"`` has eight more if ``size`` is above 64."""
    if name not in RECIPES:
        raise InputError(unknown("no augmentation is called", name, RECIPES))
    return RECIPES[name](size)
