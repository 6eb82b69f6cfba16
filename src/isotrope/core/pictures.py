"""Decodes a picture of any kind, size and orientation into the pixels that an encoder takes.

Training, evaluation and search all read pictures here. The content of a file decides its format;
its name does not. The picture is turned upright, and becomes RGB: grey is repeated in three
channels, transparent pixels become white, and 16-bit levels keep their upper 8 bits, whatever the
largest level in a picture is. Pillow's bilinear filter resizes the shorter side to ``side``; the
centre is cut out. For upright RGB, palette and 8-bit grey pictures without transparency, the image
processor that isotrope saves for transformers gives the same pixels. It clips 16-bit grey at 255.
"""

import os
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from isotrope.core.documents import check_file
from isotrope.core.errors import InputError, needs_extra, place

if TYPE_CHECKING:
    from PIL import Image

Picture: TypeAlias = "str | Path | BinaryIO | Image.Image | NDArray[np.uint8] | Tensor"
"""A file, a PIL image, or uint8 pixels: 3 x h x w, h x w x 3 or h x w (grey)."""

MOST_PIXELS = 89_478_485
"""Largest number of pixels that is decoded; a small file could otherwise fill the memory."""

_END = 1024  # bytes at the start and at the end of a file from which its checksum is computed

# no format for which Pillow starts another program, as it does for PostScript
_FORMATS = {
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "JPEG": (".jpeg", ".jpg"),
    "PNG": (".png",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
}

SUFFIXES = tuple(suffix for suffixes in _FORMATS.values() for suffix in suffixes)
"""Endings of files that can be read."""

PHOTOS = (*SUFFIXES, ".avif", ".heic", ".heif", ".jfif", ".jp2", ".jpe", ".jxl", ".dng", ".raw")
"""Endings, in lower or upper case, of files that count as pictures, also if unreadable."""


class Unreadable(InputError):
    """A file is not a picture, or is damaged."""


def measure(file: Path | BinaryIO) -> tuple[int, int, int, int]:
    """Return a picture's width, height, length in bytes and checksum, without decoding it.

    The checksum is the CRC-32 of the first and the last kilobyte of the file. Without a checksum,
    uncompressed pictures of the same size would look alike.
    """
    with (
        _opened(file) as image,
        file.open("rb") if isinstance(file, Path) else nullcontext(file) as handle,
    ):
        length = handle.seek(0, os.SEEK_END)
        handle.seek(max(0, length - _END))
        last = zlib.crc32(handle.read(_END))
        handle.seek(0)
        return image.width, image.height, length, zlib.crc32(handle.read(_END), last)


def pixels(file: Path | BinaryIO) -> NDArray[np.uint8]:
    """Return a picture as RGB in its stored size and orientation, h x w x 3."""
    with _opened(file) as image:
        return np.asarray(_rgb(image))


def grey_levels(file: Path | BinaryIO) -> tuple[int, int, int]:
    """Count a 16-bit picture's grey values, in 16 and in 8 bits, and return the largest in 16 bits.

    For other pictures, return 0, 0, 0.
    """
    with _opened(file) as image:
        if not image.mode.startswith("I"):
            return 0, 0, 0
        grey = np.asarray(image)
        return len(np.unique(grey)), len(np.unique(np.asarray(_rgb(image)))), int(grey.max())


def square(picture: Picture, side: int) -> NDArray[np.uint8]:
    """Return a picture as RGB, 3 x side x side; pixels of this size are not resized."""
    if isinstance(picture, Tensor):
        picture = picture.cpu().numpy()
    if isinstance(picture, np.ndarray):
        array = _channels_first(picture)
        if array.shape[1:] == (side, side):
            return array
        rows = np.ascontiguousarray(array.transpose(1, 2, 0))
        return _cut(_pillow().fromarray(rows), side)
    if isinstance(picture, _pillow().Image):
        with _refusing("an image of Pillow"):
            return _cut(_rgb(_upright(picture)), side)
    if isinstance(picture, str | Path) or hasattr(picture, "read"):
        file = Path(picture) if isinstance(picture, str) else picture
        with _opened(cast("Path | BinaryIO", file)) as image:
            return _cut(_rgb(_upright(image)), side)
    raise InputError(
        f"give a path, a PIL image or an array of uint8; found {picture!r:.60} "
        f"({type(picture).__name__})"
    )


def _pillow() -> ModuleType:
    with needs_extra("image"):
        from PIL import Image
    return Image


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn any error inside into :class:`Unreadable`."""
    try:
        # no warnings about strange metadata, because only the pixels are used
        with warnings.catch_warnings(action="ignore"):
            yield
    except Exception as error:  # damaged bytes make a decoder fail in any way
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unreadable(f"{what} is not a picture that can be read: {why}") from error


@contextmanager
def _opened(file: Path | BinaryIO) -> "Iterator[Image.Image]":
    """Open a picture without decoding it; any error inside becomes :class:`Unreadable`."""
    pillow = _pillow()
    if isinstance(file, Path):
        try:
            check_file(file)  # opening a pipe would wait for ever
        except InputError as error:
            raise Unreadable(str(error)) from error
    what = place(file) if isinstance(file, Path) else "the picture in memory"
    with _refusing(what), pillow.open(file, formats=tuple(_FORMATS)) as image:
        if image.width * image.height > MOST_PIXELS:
            size = f"{image.width} x {image.height}"
            raise ValueError(f"shrink it to at most {MOST_PIXELS:,} pixels; it has {size}")
        yield image


def _channels_first(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return one picture's pixels as 3 x h x w."""
    if array.dtype != np.uint8:
        raise InputError(
            "convert the pixels to uint8, 0 to 255 (multiply numbers from 0 to 1 by 255 first); "
            f"found {array.dtype}"
        )
    if array.ndim == 2 and array.size:
        return np.broadcast_to(array, (3, *array.shape))
    if array.ndim == 3 and array.size and array.shape[0] == 3:
        return array
    if array.ndim == 3 and array.size and array.shape[2] == 3:
        return array.transpose(2, 0, 1)
    raise InputError(f"give pixels as 3 x h x w, h x w x 3 or h x w; found shape {array.shape}")


def _upright(image: "Image.Image") -> "Image.Image":
    """Return a picture turned by its EXIF orientation."""
    from PIL import ImageOps

    image.load()  # fails if the picture is damaged
    with suppress(Exception):  # the orientation cannot be read: keep the picture as stored
        return ImageOps.exif_transpose(image)
    return image


def _rgb(image: "Image.Image") -> "Image.Image":
    """Return a picture of any mode as RGB."""
    pillow = _pillow()
    if image.mode == "F":
        raise ValueError("save its pixels as 8 or 16 bits, not as floating-point numbers")
    if image.mode.startswith("I"):  # 16 bits of grey, which convert() would clip at 255
        grey = np.asarray(image).clip(0, 65535)
        image = pillow.fromarray((grey >> 8).astype(np.uint8))
    if image.has_transparency_data:
        white = pillow.new("RGBA", image.size, "white")
        white.alpha_composite(image.convert("RGBA"))
        image = white
    return image.convert("RGB")


def _cut(image: "Image.Image", side: int) -> NDArray[np.uint8]:
    """Resize the shorter side of an RGB picture to ``side``; return its centre as an array."""
    width, height = image.size
    short = min(width, height)
    # transformers resizes the whole picture and rounds the longer side down. Decoding a JPEG at a
    # fraction of its size would be faster, but would give other pixels
    size = (int(side * width / short), int(side * height / short))
    if size[0] * size[1] > MOST_PIXELS:
        raise InputError(
            f"crop this picture: its {width} x {height} pixels would take gigabytes of memory "
            f"after the shorter side is resized to {side}"
        )
    if size != image.size:
        image = image.resize(size, _pillow().Resampling.BILINEAR)
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    return np.asarray(image.crop((left, top, left + side, top + side))).transpose(2, 0, 1)
