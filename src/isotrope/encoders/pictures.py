"""From a picture of any kind and size to the square of pixels that an encoder sees."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Picture", "square"]

Picture: TypeAlias = "str | Path | Image.Image | NDArray[np.uint8] | Tensor"
"""A file, a PIL image, or uint8 pixels: 3 x h x w, h x w x 3 or h x w (grey)."""


def square(picture: Picture, side: int) -> NDArray[np.uint8]:
    """Return 3 x side x side pixels: the shorter side resized to ``side``, the centre cut out.

    Resizing is Pillow's bilinear filter, which averages where it makes smaller. Pixels that have
    the right size already are taken as they are. A file is turned as its EXIF entry says.

    Raises:
        InputError: a file that is no picture, or pixels of another kind or shape.
        MissingExtra: Pillow is needed and not installed.
    """
    if isinstance(picture, np.ndarray | Tensor):
        pixels = _channels_first(np.asarray(picture))
        if pixels.shape[1:] == (side, side):
            return pixels
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("PIL", extra="image") from error

    if isinstance(picture, str | Path):
        image = _opened(Path(picture))
    elif isinstance(picture, np.ndarray | Tensor):
        image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    elif isinstance(picture, Image.Image):
        image = _rgb(picture)
    else:
        raise InputError(
            "a picture is a path, a PIL image or an array of uint8; "
            f"found {picture!r:.60} ({type(picture).__name__})"
        )
    width, height = image.size
    short = min(width, height)
    size = (int(side * width / short), int(side * height / short))
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    resized = image if size == image.size else image.resize(size, Image.Resampling.BILINEAR)
    cut = resized.crop((left, top, left + side, top + side))
    return np.asarray(cut).transpose(2, 0, 1)


def _channels_first(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return one picture's pixels as 3 x h x w."""
    if pixels.dtype != np.uint8:
        raise InputError(
            f"pixels must be uint8, 0 to 255; found {pixels.dtype}: multiply by 255 and convert"
        )
    if pixels.ndim == 2 and pixels.size:
        return np.broadcast_to(pixels, (3, *pixels.shape))
    if pixels.ndim == 3 and pixels.size and pixels.shape[0] == 3:
        return pixels
    if pixels.ndim == 3 and pixels.size and pixels.shape[2] == 3:
        return pixels.transpose(2, 0, 1)
    raise InputError(f"a picture is 3 x h x w, h x w x 3 or h x w; found {pixels.shape}")


def _opened(path: Path) -> "Image.Image":
    """Read a file, the right way up."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return _rgb(ImageOps.exif_transpose(image))
    except (UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} is no picture that can be read: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _rgb(image: "Image.Image") -> "Image.Image":
    """Return a picture in RGB; of 16 bits the upper 8, and without its transparency."""
    if image.mode.startswith("I;16"):
        from PIL import Image

        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("RGB")
