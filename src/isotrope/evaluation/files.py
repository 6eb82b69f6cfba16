"""Encodes and searches the texts of a file (``isotrope encode`` and ``isotrope search``)."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace
from isotrope.data.text.corpora import Record, read
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.image_tasks import takes_images
from isotrope.evaluation.retrieval import search

__all__ = ["encode_file", "search_file"]

_BLOCK = 20_000  # texts encoded, and rows written, at a time


def _records(file: Path, columns: Sequence[str] | None) -> Iterator[Record]:
    for record in read([Path(file)], columns=columns):
        if len(record.texts) != 1:
            raise InputError(
                f"{file} holds pairs; name the one column to take, or give a file of single texts"
            )
        yield record


def _check_no_text(model: str | Path, columns: Sequence[str] | None, pooling: str | None) -> None:
    if columns or pooling:
        raise InputError(f"{model} takes images: columns and pooling are of text; leave them out")


def encode_file(
    model: str | Path,
    file: Path,
    output: Path,
    *,
    columns: Sequence[str] | None = None,
    pooling: str | None = None,
    normalize: bool = False,
    device: str = "auto",
    progress: bool = False,
) -> tuple[int, int]:
    """Write the embeddings of the texts of ``file`` to ``output`` (.npy, n x d float32).

    The file is read twice, once to count its texts, so that memory does not grow with it. For an
    encoder of images ``file`` is a folder of pictures:
    :func:`isotrope.evaluation.image_files.encode_pictures`.

    Returns:
        n and d.

    Raises:
        InputError: anything wrong with the model, the file or the place to write.
    """
    if Path(output).suffix != ".npy":
        raise InputError(f"output {output} must end in .npy")
    if takes_images(model, ask_hub=True):
        from isotrope.evaluation.image_files import encode_pictures

        _check_no_text(model, columns, pooling)
        return encode_pictures(
            model, file, output, normalize=normalize, device=device, progress=progress
        )
    count = sum(1 for _ in _records(file, columns))
    encoder = SentenceEncoder.load(model, pooling=pooling, device=device)
    texts = (record.texts[0] for record in _records(file, columns))
    shape = (count, encoder.dimension)
    with atomic_replace(Path(output)) as temporary:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        # written in order: a memory map of a file on a full disk ends in a bus error
        with temporary.open("wb") as handle:
            np.lib.format.write_array_header_1_0(handle, header)
            while block := list(islice(texts, _BLOCK)):
                rows = encoder.encode(block, normalize=normalize, progress=progress)
                handle.write(rows.astype("<f4", copy=False).tobytes())
    return shape


def search_file(
    model: str | Path,
    file: Path,
    query: str,
    *,
    top: int = 10,
    columns: Sequence[str] | None = None,
    pooling: str | None = None,
    device: str = "auto",
    progress: bool = False,
) -> list[tuple[float, int, str]]:
    """Return cosine, line number and text of the ``top`` texts of ``file`` closest to ``query``.

    For an encoder of images ``file`` is a folder of pictures and ``query`` the path of one.

    Raises:
        InputError: an empty query, or anything wrong with the model or the file.
    """
    if not query.strip():
        raise InputError("the query is empty; give some words to search for")
    if takes_images(model, ask_hub=True):
        from isotrope.evaluation.image_files import search_pictures

        _check_no_text(model, columns, pooling)
        return search_pictures(model, file, query, top=top, device=device, progress=progress)
    if query.encode("utf-8", "ignore").decode("utf-8") != query:
        raise InputError(f"the query is no UTF-8 text: {query!r:.60}; write it as UTF-8")
    records = list(_records(file, columns))
    encoder = SentenceEncoder.load(model, pooling=pooling, device=device)
    corpus = encoder.encode([record.texts[0] for record in records], progress=progress)
    hits = search(encoder, corpus, query, top=top)
    return [(score, records[i].line, records[i].texts[0]) for i, score in hits]
