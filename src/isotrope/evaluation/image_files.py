"""Using an image encoder on a folder of pictures: encode them, search them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.files import replacing
from isotrope.data.image_decode import SUFFIXES
from isotrope.encoders.image import ImageEncoder
from isotrope.evaluation.nearest import nearest_rows

__all__ = ["encode_pictures", "pictures_below", "search_pictures"]

_BLOCK = 1024  # pictures encoded at a time


def pictures_below(folder: Path) -> list[str]:
    """Return the pictures in a folder and below it: paths from there, sorted; nothing hidden.

    Raises:
        InputError: no folder, or no pictures in it.
    """
    if not Path(folder).is_dir():
        raise InputError(f"{folder} is no folder; an encoder of images takes a folder of pictures")
    names = (path.relative_to(folder) for path in Path(folder).rglob("*"))
    shown = sorted(
        name.as_posix()
        for name in names
        if name.suffix.lower() in SUFFIXES and not any(part[0] == "." for part in name.parts)
    )
    if not shown:
        raise InputError(f"{folder} holds no pictures ({', '.join(SUFFIXES)})")
    return shown


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

    Beside it, in a file that ends in ``.txt``, stands the path of each row's picture.

    Returns:
        n and d.

    Raises:
        InputError: anything wrong with the model, a picture or the place to write.
    """
    output = Path(output)
    names = pictures_below(folder)
    encoder = ImageEncoder.load(model, device=device)
    shape = (len(names), encoder.dimension)
    with replacing(output) as temporary, temporary.open("wb") as handle:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(handle, header)
        for rows in _encoded(encoder, folder, names, normalize=normalize, progress=progress):
            handle.write(rows.astype("<f4", copy=False).tobytes())
    with replacing(output.with_suffix(".txt")) as temporary:
        # names as the file system has them, in whatever encoding
        listed = "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")
        temporary.write_bytes(listed)
    return shape


def search_pictures(
    model: str | Path,
    folder: Path,
    query: str,
    *,
    top: int = 10,
    device: str = "auto",
    progress: bool = False,
) -> list[tuple[float, int, str]]:
    """Return cosine, number and path of the ``top`` pictures of a folder closest to another one.

    Raises:
        InputError: anything wrong with the model or a picture.
    """
    names = pictures_below(folder)
    encoder = ImageEncoder.load(model, device=device)
    asked = encoder.encode([query])
    corpus = np.concatenate(list(_encoded(encoder, folder, names, progress=progress)))
    places, cosines = nearest_rows(asked, corpus, top)
    return [
        (float(cosine), int(i) + 1, names[i])
        for i, cosine in zip(places[0], cosines[0], strict=True)
    ]


def _encoded(
    encoder: ImageEncoder,
    folder: Path,
    names: list[str],
    *,
    normalize: bool = False,
    progress: bool = False,
) -> Iterator[np.ndarray]:
    for first in range(0, len(names), _BLOCK):
        files = [Path(folder) / name for name in names[first : first + _BLOCK]]
        yield encoder.encode(files, normalize=normalize, progress=progress)
