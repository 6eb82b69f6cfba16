"""Encodes and searches the pictures of a folder (``isotrope encode`` and ``isotrope search``)."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isotrope.core.errors import InputError, place
from isotrope.core.files import replace_together
from isotrope.core.pictures import SUFFIXES, Unreadable, square
from isotrope.data.images.folder import below
from isotrope.encoders.image import ImageEncoder
from isotrope.evaluation.nearest import nearest_rows

logger = logging.getLogger(__name__)

_BLOCK = 1024  # pictures encoded at a time


def pictures_below(folder: Path) -> list[str]:
    """Return the sorted relative paths of the pictures in a folder and its subfolders.

    As in training, links are followed and hidden files are ignored.
    """
    if not Path(folder).is_dir():
        raise InputError(
            f"give a folder of pictures, which an image encoder takes: {folder} is not a folder"
        )
    pictures = sorted(below(Path(folder)))
    if not pictures:
        raise InputError(f"{folder} holds no pictures ({', '.join(SUFFIXES)})")
    return pictures


def encode_pictures(
    model: str | Path,
    folder: Path,
    output: Path,
    *,
    normalize: bool = False,
    device: str = "auto",
    progress: bool = False,
) -> tuple[int, int]:
    """Write the embeddings of the pictures below ``folder`` to ``output`` (.npy, n x d float32).

    A text file beside ``output``, with the suffix .txt, has the path of one picture on each line.
    Unreadable pictures are skipped; a warning gives their number and an example.

    Returns:
        n and d.
    """
    output = Path(output)
    names = pictures_below(folder)
    if broken := [name for name in names if "\n" in name or "\r" in name]:
        raise InputError(
            f"{place(folder)}: rename {broken[0]!r}, whose name has a line break; the list of "
            "pictures has one name on each line"
        )
    encoder = ImageEncoder.load(model, device=device)
    encoded, rows = _encoded(encoder, folder, names, normalize=normalize, progress=progress)
    # surrogateescape writes the bytes of each name as the file system has them
    listed = "".join(f"{name}\n" for name in encoded).encode("utf-8", "surrogateescape")
    files = [output.name, output.with_suffix(".txt").name]
    with replace_together(output.parent, files) as new:
        np.save(new / files[0], rows)
        (new / files[1]).write_bytes(listed)
    return rows.shape


def search_pictures(
    model: str | Path,
    folder: Path,
    queries: Sequence[str],
    *,
    top: int = 10,
    device: str = "auto",
    progress: bool = False,
) -> list[list[tuple[float, int, str]]]:
    """Return the ``top`` pictures with the highest cosine to each query: cosine, number and path.

    Pictures that cannot be read are skipped, as in :func:`encode_pictures`.
    """
    names = pictures_below(folder)
    encoder = ImageEncoder.load(model, device=device)
    wanted = encoder.encode(queries)
    encoded, rows = _encoded(encoder, folder, names, progress=progress)
    places, cosines = nearest_rows(wanted, rows, top)
    return [
        [(cosine, i + 1, encoded[i]) for i, cosine in zip(*found, strict=True)]
        for found in zip(places.tolist(), cosines.tolist(), strict=True)
    ]


def _encoded(
    encoder: ImageEncoder,
    folder: Path,
    names: list[str],
    *,
    normalize: bool = False,
    progress: bool = False,
) -> tuple[list[str], NDArray[np.float32]]:
    """Return names and embeddings of the readable pictures; log a warning on the others."""
    encoded: list[str] = []
    broken: list[str] = []
    blocks = []
    for first in range(0, len(names), _BLOCK):
        pixels = []
        for name in names[first : first + _BLOCK]:
            try:
                pixels.append(square(Path(folder) / name, encoder.image_size))
            except Unreadable as error:
                broken.append(str(error))
            else:
                encoded.append(name)
        if pixels:
            rows = encoder.encode(np.stack(pixels), normalize=normalize, progress=progress)
            blocks.append(rows)
    if not blocks:
        raise InputError(f"{place(folder)}: none of {len(names):,} files can be read: {broken[0]}")
    if broken:
        count = f"{len(broken):,} of {len(names):,}"
        logger.warning("left out %s pictures that cannot be read, such as: %s", count, broken[0])
    return encoded, np.concatenate(blocks)
