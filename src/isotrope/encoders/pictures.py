"""From a picture of any kind and size to the square of pixels that an encoder sees."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.documents import check_file
from isotrope.core.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Picture", "square"]

Picture: TypeAlias = "str | Path | Image.Image | NDArray[np.uint8] | Tensor"
"""A file, a PIL image, or uint8 pixels: 3 x h x w, h x w x 3 or h x w (grey)."""

_MOST_PIXELS = 89_478_485  # of a picture that is resized, as of one that is decoded
# nothing that Pillow hands to another program, as it does PostScript
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")


def square(picture: Picture, side: int) -> NDArray[np.uint8]:
    """Return 3 x side x side pixels: the shorter side resized to ``side``, the centre cut out.

    As transformers' CLIP processor does: Pillow's bilinear filter, which averages where it makes
    smaller, and white where a picture is transparent. Pixels of the right size are taken as they
    are. A file is turned as its EXIF entry says, and of 16 bits the upper 8 are taken.

    Raises:
        InputError: a file that is no picture, or pixels of another kind or shape.
        MissingExtra: Pillow is needed and not installed.
    """
    if isinstance(picture, Tensor):
        picture = picture.cpu().numpy()
    if isinstance(picture, np.ndarray):
        pixels = _channels_first(picture)
        if pixels.shape[1:] == (side, side):
            return pixels
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("PIL", extra="image") from error

    if isinstance(picture, str | Path):
        image = _opened(Path(picture))
    elif isinstance(picture, np.ndarray):
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
    # transformers rounds the longer side down
    size = (int(side * width / short), int(side * height / short))
    if size[0] * size[1] > _MOST_PIXELS:
        raise InputError(
            f"a picture of {width} x {height} pixels is too long and narrow: with its shorter side "
            f"at {side} it would take gigabytes; cut it first"
        )
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
    from PIL import Image, ImageOps

    check_file(path)

    try:
        # odd metadata is no reason for a warning: what matters are the pixels
        with warnings.catch_warnings(action="ignore"), Image.open(path, formats=_FORMATS) as image:
            return _rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # damaged bytes make a decoder fail in any way
        what = getattr(error, "strerror", None) or error
        raise InputError(f"{path} is no picture that can be read: {what}") from error


def _rgb(image: "Image.Image") -> "Image.Image":
    """Return a picture in RGB: of 16 bits the upper 8, and white where it is transparent."""
    from PIL import Image

    if image.mode.startswith("I"):  # convert() would clip at 255
        upper = np.asarray(image).clip(0, 65535) >> 8
        image = Image.fromarray(upper.astype(np.uint8))
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image.convert("RGBA"))
        image = white
    return image.convert("RGB")
