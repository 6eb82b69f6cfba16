"""Decoding: one file of any mode, size and orientation to RGB of one side, or one clear refusal.

PNG, JPEG and WebP are told by their content, whatever the name says. Grey is repeated, the high
byte of 16 bits is taken, transparent pixels become white, CMYK is converted, the orientation of a
camera is applied. The shorter side becomes ``side`` (bilinear with antialiasing, enlarged where it
is smaller), and the middle is cut out.
"""

import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import MissingExtra

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["SUFFIXES", "Unreadable", "decode", "measure", "pixels", "resized"]

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")
"""Endings, in any case, of the files of a folder that are taken for pictures."""

MOST_PIXELS = 89_478_485
"""Pixels above which a file is not decoded: a gigabyte of memory for a few bytes, if it lies."""


class Unreadable(Exception):
    """A file that is no picture, or a damaged one."""


@contextmanager
def _opened(file: Path | BinaryIO) -> "Iterator[Image]":
    """Open a picture; whatever fails inside says that it is unreadable."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("PIL", extra="image") from error
    try:
        # odd metadata is no reason for a warning: what matters are the pixels
        quiet = warnings.catch_warnings(action="ignore")
        with quiet, Image.open(file, formats=("PNG", "JPEG", "WEBP")) as image:
            if image.width * image.height > MOST_PIXELS:
                raise Unreadable(f"{image.width} x {image.height} pixels")
            yield image
    except Exception as error:  # damaged bytes make a decoder fail in any way
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def measure(file: Path | BinaryIO) -> tuple[int, int, int]:
    """Return width, height and length in bytes of a picture, by its header alone.

    Raises:
        Unreadable: not a regular file, no picture, or one of too many pixels.
        MissingExtra: pillow is not installed.
    """
    if isinstance(file, Path):
        try:
            found = file.stat()
        except OSError as error:
            raise Unreadable(str(error)) from error
        if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for ever
            raise Unreadable("not a regular file")
        size = found.st_size
    else:
        size = file.seek(0, 2)
        file.seek(0)
    with _opened(file) as image:
        return image.width, image.height, size


def decode(file: Path | BinaryIO, side: int) -> NDArray[np.uint8]:
    """Return a picture as RGB, 3 x side x side.

    Raises:
        Unreadable: no picture, or a damaged one.
        MissingExtra: pillow is not installed.
    """
    with _opened(file) as image:
        from PIL import ImageOps

        # a JPEG far larger than needed is decoded at 1/2, 1/4 or 1/8: twice the side is enough
        image.draft(None, (2 * side, 2 * side))
        image.load()
        with suppress(Exception):  # a broken tag of the camera: as it is stored
            ImageOps.exif_transpose(image, in_place=True)
        return _fit(_rgb(image), side)


def pixels(file: Path | BinaryIO) -> NDArray[np.uint8]:
    """Return a picture as RGB of its own size, h x w x 3.

    Raises:
        Unreadable: no picture, or a damaged one.
        MissingExtra: pillow is not installed.
    """
    with _opened(file) as image:
        return np.asarray(_rgb(image))


def _rgb(image: "Image") -> "Image":
    """Return a picture of any mode as RGB."""
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits of grey, which convert() would clip at 255
        high = np.asarray(image).clip(0, 65535) >> 8
        return Image.fromarray(high.astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image.convert("RGBA"))
        return white.convert("RGB")
    return image.convert("RGB")


def _fit(image: "Image", side: int) -> NDArray[np.uint8]:
    """Return the middle of an RGB picture, 3 x side x side, its shorter side resized to that."""
    from PIL import Image

    if image.size != (side, side):
        short = min(image.size)
        left, top = (image.width - short) / 2, (image.height - short) / 2
        box = (left, top, left + short, top + short)
        image = image.resize((side, side), Image.Resampling.BILINEAR, box=box)
    return np.asarray(image).transpose(2, 0, 1)


def resized(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Return pictures (n x 3 x h x w) as n x 3 x side x side, like :func:`decode`."""
    if images.shape[2:] == (side, side):
        return images
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("PIL", extra="image") from error
    rows = images.transpose(0, 2, 3, 1)
    found = [_fit(Image.fromarray(np.ascontiguousarray(row)), side) for row in rows]
    return np.stack(found) if found else np.empty((0, 3, side, side), np.uint8)
