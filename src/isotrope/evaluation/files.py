"""Encodes and searches the texts of a file or the pictures of a folder (``encode``, ``search``)."""

import csv
import functools
import glob
import hashlib
import io
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray

from isotrope.core.documents import check_file
from isotrope.core.errors import InputError, place
from isotrope.core.files import (
    check_outputs,
    open_own,
    os_errors_as_input_errors,
    remove,
    replace_together,
)
from isotrope.core.fingerprint import fingerprint
from isotrope.core.lock import exclusive_lock
from isotrope.core.pictures import SUFFIXES, Unreadable, square
from isotrope.core.progress import bar, showing
from isotrope.data.images.folder import below
from isotrope.data.lines import quoted
from isotrope.data.schemas import Reading
from isotrope.data.sources import read
from isotrope.encoders.image import ImageEncoder
from isotrope.encoders.sentence import SentenceEncoder, check_prompts
from isotrope.evaluation.embed import Encoder, embed, encoder_name, unwrapped
from isotrope.evaluation.image_tasks import takes_images
from isotrope.evaluation.nearest import nearest_rows
from isotrope.evaluation.options import Encoding, Search
from isotrope.evaluation.retrieval import own_prompts

Model = str | os.PathLike[str] | Encoder
Corpus = str | Path | Sequence[str] | np.ndarray

logger = logging.getLogger(__name__)

_BLOCK = 5_000  # number of texts encoded, and of rows written or checked, at a time
_COMPARED = 8  # number of texts that are encoded again to check stored embeddings
_SAME = 0.999  # least cosine of two encodings of one text (on other devices, in other batches)
_PICTURES = 1024  # pictures encoded at a time


class Hit(NamedTuple("Hit", [("score", float), ("place", int | str), ("text", str)])):
    """One text or picture that a search has found: a tuple of score, place and text.

    Attributes:
        score: Cosine with the query, from -1 to 1.
        place: Id of the text, if a column ``_id`` or ``id`` has one for each. Otherwise the line of
            the file or the number of the picture, counted from 1. For a list or a matrix, the
            index, counted from 0.
        text: The text, or the path of the picture; empty if only embeddings were given.
        places: The place of each row with this text, the first of which is ``place``.
    """

    places: Sequence[int | str] = ()


# encode


def encode_file(
    model: str | Path, file: Path, output: Path, *, progress: bool = True, **options: Any
) -> tuple[int, int]:
    """Write the embeddings of the texts of ``file`` to ``output`` (.npy, n x d float32).

    The file is read twice, first to count its texts, so that memory does not grow with the file.
    Finished rows are kept in a hidden folder beside ``output``; after an interruption, the same
    call continues after these rows. Blank lines, and rows of a table with an empty text, are
    skipped. A table with the name of ``output`` and the suffix .rows.csv therefore lists where the
    n texts are: ``row`` in the table (from 1, after the header), ``line`` and ``id``.

    For an image encoder, ``file`` is a folder of pictures. Then a text file with the name of
    ``output`` and the suffix .txt lists the paths of the n pictures; unreadable pictures are
    skipped, with a warning.

    ``options`` are the options of ``isotrope encode``. The option ``prompt`` is put before every
    text. By default, it is the model's prompt for passages (if it has one), as in :func:`search`.

    Returns:
        The number n of embeddings, and their dimension d.
    """
    settings = Encoding.read(options)
    check_outputs(output.parent, [output.name])
    if takes_images(model, ask_hub=True):
        settings.check_used(pictures=True)
        return _encode_pictures(model, Path(file), output, settings, progress=progress)
    names = [output.name, output.with_suffix(".rows.csv").name]
    check_outputs(output.parent, names, [file])
    reading = _single_texts(file, settings.columns)
    count, digest = 0, hashlib.blake2b(digest_size=8)
    for record in reading:
        count += 1
        digest.update(record.texts[0].encode("utf-8", "surrogatepass") + b"\0")
    print(f"{reading}; the rows of the matrix are listed in {names[1]}", file=sys.stderr)
    encoder = SentenceEncoder.load(model, pooling=settings.pooling, device=settings.device)
    _, prompt = _prompts(encoder, "", settings.prompt)
    source = _Source(model, settings.pooling, settings.device, encoder.fingerprint())
    shape = (count, encoder.dimension)
    about = fingerprint(source.fingerprint, digest.digest(), prompt, settings.normalize)
    unfinished = output.with_name(f".{output.name}.{about[:8]}")
    with exclusive_lock(unfinished, f"encoding to {output}"), os_errors_as_input_errors(unfinished):
        # no memory map: on a full disk, writing to it ends the process (bus error)
        with open_own(unfinished / "rows.npy", "ab") as matrix:
            done = _continue_matrix(matrix, shape)
            texts = _listed(reading, unfinished / "rows.csv")
            remaining = (prompt + text for text in islice(texts, done, None))
            blocks = iter(lambda: list(islice(remaining, _BLOCK)), [])
            in_process = settings.jobs == 1
            inner = progress and in_process and count <= _BLOCK  # the encoder shows its own bar
            how = {**settings.model_dump(include={"normalize", "batch_size"}), "progress": inner}
            encoded = (
                (encoder.encode(block, **how) for block in blocks)
                if in_process
                else _encode_in_processes(source, blocks, how, settings.jobs)
            )
            with bar(count - done, "encode", "texts", show=progress and not inner) as show:
                for rows in encoded:
                    matrix.write(rows.astype("<f4", copy=False).tobytes())
                    matrix.flush()
                    show(len(rows))
        with replace_together(output.parent, names) as new:
            for name, written in zip(names, ("rows.npy", "rows.csv"), strict=True):
                (unfinished / written).replace(new / name)
    _remove_unfinished(output)
    return shape


def _single_texts(file: Path, columns: Sequence[str] | None) -> Reading:
    """Return the texts of a file that has one text, not a pair, in each record."""
    reading = read([Path(file)], columns=columns or None, paired=False, scored=True, choose=1)
    reading.ids = True
    if len(next(iter(reading)).texts) != 1:
        name = reading.names[1]
        raise InputError(f"choose a column, for example `--columns {name}`: {file} holds pairs")
    return reading


def _listed(reading: Reading, path: Path) -> Iterator[str]:
    """Yield the texts of a file, and write a table with the row, line and id of each."""
    with open_own(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as table:
        written = csv.writer(table, lineterminator="\n")  # ids as they are, to join tables by
        written.writerow(("row", "line", "id"))
        for record in reading:
            written.writerow((reading.rows, record.line, record.id))
            yield record.texts[0]


def _continue_matrix(matrix: IO[bytes], shape: tuple[int, int]) -> int:
    """Write the header of an .npy file unless it has rows already; return the number of its rows.

    Rows after the last whole block are removed: an interruption may have cut them.
    """
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    start, row_size = len(header.getvalue()), 4 * shape[1]
    done = max(0, matrix.tell() - start) // (row_size * _BLOCK) * _BLOCK
    matrix.truncate(start + row_size * done if done else 0)
    if done:
        print(f"continues after {done:,} texts", file=sys.stderr)
    else:
        matrix.write(header.getvalue())
    return done


def _remove_unfinished(output: Path) -> None:
    """Remove the hidden folders of all calls for an output, except of those that still run."""
    for folder in output.parent.glob(f".{glob.escape(output.name)}.{'[0-9a-f]' * 8}"):
        with suppress(InputError), exclusive_lock(folder, "encoding"):
            remove(folder)


@dataclass(frozen=True)
class _Source:
    """An encoder to load in a worker process; another fingerprint means it was replaced."""

    model: str | Path
    pooling: str | None
    device: str
    fingerprint: str


def _encode_in_processes(
    source: _Source, blocks: Iterator[list[str]], how: dict[str, Any], jobs: int
) -> Iterator[np.ndarray]:
    """Encode blocks in several processes; yield the embeddings of each block, in order."""
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    parallel = joblib.Parallel(n_jobs=jobs, pre_dispatch="1.5*n_jobs", return_as="generator")
    calls = (joblib.delayed(_encode_block)(i, source, block, how) for i, block in enumerate(blocks))
    try:
        yield from parallel(calls)
    except TerminatedWorkerError as error:
        raise InputError(
            "run the same command with fewer `--jobs` to continue: one of the encoding processes "
            "was killed, usually because memory ran out"
        ) from error


_first_block: dict[str, int] = {}  # of this worker process; its number decides on the GPU


def _encode_block(
    number: int, source: _Source, block: list[str], how: dict[str, Any]
) -> NDArray[np.float32]:
    """Encode a block in a worker process, which keeps its model and its GPU for its next blocks."""
    gpus = torch.cuda.device_count() if source.device in ("auto", "cuda") else 0
    if gpus:
        first = _first_block.setdefault("number", number)
        source = replace(source, device=f"cuda:{first % gpus}")
    return _loaded(source).encode(block, **how)


@functools.lru_cache(maxsize=8)
def _loaded(source: _Source) -> SentenceEncoder:
    return SentenceEncoder.load(source.model, pooling=source.pooling, device=source.device)


def _encode_pictures(
    model: str | Path, folder: Path, output: Path, settings: Encoding, *, progress: bool
) -> tuple[int, int]:
    """Write the embeddings of the pictures below ``folder``, and the list of their paths."""
    names = pictures_below(folder)
    if broken := [name for name in names if "\n" in name or "\r" in name]:
        raise InputError(
            f"{place(folder)}: rename {broken[0]!r}: its name has a line break, but the list of "
            "pictures has one name on each line"
        )
    encoder = ImageEncoder.load(model, device=settings.device)
    normalize = settings.normalize
    encoded, rows = _encode_readable(encoder, folder, names, normalize=normalize, progress=progress)
    # surrogateescape writes the bytes of each name as the file system has them
    listed = "".join(f"{name}\n" for name in encoded).encode("utf-8", "surrogateescape")
    files = [output.name, output.with_suffix(".txt").name]
    with replace_together(output.parent, files) as new:
        np.save(new / files[0], rows)
        (new / files[1]).write_bytes(listed)
    return rows.shape


# pictures


def pictures_below(folder: Path) -> list[str]:
    """Return the sorted relative paths of the pictures in a folder and its subfolders.

    As in training, links are followed and hidden files are ignored.
    """
    if not Path(folder).is_dir():
        raise InputError(
            f"give a folder of pictures, which an image encoder needs: {folder} is not a folder"
        )
    pictures = sorted(below(Path(folder)))
    if not pictures:
        raise InputError(
            f"give a folder with pictures ({', '.join(SUFFIXES)}); found none in {folder}"
        )
    return pictures


def _encode_readable(
    encoder: ImageEncoder, folder: Path, names: list[str], *, normalize: bool, progress: bool
) -> tuple[list[str], NDArray[np.float32]]:
    """Return names and embeddings of the readable pictures; log a warning on the others."""
    encoded: list[str] = []
    broken: list[str] = []
    blocks = []
    for first in range(0, len(names), _PICTURES):
        pixels = []
        for name in names[first : first + _PICTURES]:
            try:
                pixels.append(square(Path(folder) / name, encoder.image_size))
            except Unreadable as error:
                broken.append(str(error))
            else:
                encoded.append(name)
        if pixels:
            blocks.append(encoder.encode(np.stack(pixels), normalize=normalize, progress=progress))
    if not blocks:
        raise InputError(
            f"{place(folder)}: copy the pictures again, because none of {len(names):,} can be "
            f"read; the first: {broken[0]}"
        )
    if broken:
        count = f"{len(broken):,} of {len(names):,}"
        logger.warning("left out %s pictures that cannot be read; the first: %s", count, broken[0])
    return encoded, np.concatenate(blocks)


# search


@overload
def search(model: Model, corpus: Corpus, query: str, **options: Any) -> list[Hit]: ...


@overload
def search(
    model: Model, corpus: Corpus, query: list[str] | tuple[str, ...], **options: Any
) -> list[list[Hit]]: ...


def search(
    model: Model,
    corpus: Corpus,
    query: str | list[str] | tuple[str, ...],
    *,
    progress: bool = True,
    **options: Any,
) -> list[Hit] | list[list[Hit]]:
    """Return a list of :class:`Hit`: the texts with the highest cosine to a query, best first.

    Args:
        model: Name or folder for ``isotrope.load``, a finished run, or any object with ``encode``.
            A name or a folder is loaded at each call: for several calls, load it once before.
        corpus: A file of texts, a list of m texts, or an array of m embeddings (m x d). An image
            encoder needs a folder of pictures.
        query: One text; or a list of texts, which are searched at once: the result has one list
            for each text. An image encoder needs paths of pictures instead of texts.
        progress: Whether to show a progress bar on stderr.
        options: Keywords such as ``top=10`` or ``embeddings="rows.npy"``. ``help(isotrope.search)``
            lists all keywords, and ``isotrope search --help`` explains them.

    Raises:
        InputError: The query or the corpus is empty; ``top`` is below 1; the embeddings are not
            finite, or are of another model or other texts; the model or the file cannot be read.
    """
    settings = Search.read(options)
    listed = "file" if isinstance(corpus, (str, Path)) else "texts"
    form = "matrix" if isinstance(corpus, np.ndarray) else listed
    settings.check_used(corpus=form)
    queries = [query] if isinstance(query, str) else list(query)
    if not queries or not all(words.strip() for words in queries):
        raise InputError("give some words to search for: the query is empty")
    if isinstance(model, (str, os.PathLike)) and takes_images(os.fspath(model), ask_hub=True):
        settings.check_used(pictures=True)
        if not isinstance(corpus, (str, Path)):
            raise InputError(f"give a folder of pictures to search in: {model} takes images")
        names = pictures_below(Path(corpus))
        encoder = ImageEncoder.load(os.fspath(model), device=settings.device)
        folder, vectors = Path(corpus), encoder.encode(queries)
        texts, rows = _encode_readable(encoder, folder, names, normalize=False, progress=progress)
        searched = _Searched(vectors, rows, [[i + 1] for i in range(len(texts))], texts)
    else:
        searched = _embed_texts(model, corpus, queries, settings, progress=progress)
    nearest, cosines = nearest_rows(searched.queries, searched.rows, settings.top)
    hits = []
    for indices, scores in zip(nearest.tolist(), cosines.tolist(), strict=True):
        best = zip(indices, scores, strict=True)
        hits.append([Hit(score, searched.places[i][0], searched.texts[i]) for i, score in best])
        for hit, i in zip(hits[-1], indices, strict=True):
            hit.places = searched.places[i]
    return hits[0] if isinstance(query, str) else hits


vars(search)["__signature__"] = Search.signature(search)


class _Searched(NamedTuple):
    """Embeddings of n queries and of m texts or pictures, with the places and texts of hits."""

    queries: np.ndarray  # n x d
    rows: np.ndarray  # m x d
    places: Sequence[Sequence[int | str]]  # m, see Hit
    texts: Sequence[str]  # m


def _embed_texts(
    model: Model, corpus: Corpus, queries: Sequence[str], settings: Search, *, progress: bool
) -> _Searched:
    """Embed queries and corpus. Equal texts are one hit, at the place of the first."""
    places, texts = _places_and_texts(corpus, settings.columns, progress=progress)
    encoder: Encoder = (
        SentenceEncoder.load(os.fspath(model), pooling=settings.pooling, device=settings.device)
        if isinstance(model, (str, os.PathLike))
        else model
    )
    query_prompt, prompt = _prompts(encoder, settings.query_prompt, settings.passage_prompt)
    prompted, size = [query_prompt + query for query in queries], settings.batch_size
    with showing(show=progress):
        vectors = embed(encoder, prompted, "queries", batch_size=size)
        if isinstance(corpus, np.ndarray):
            _check_rows(corpus, len(texts), vectors.shape[1], encoder)
            return _Searched(vectors, corpus, [[place] for place in places], texts)
        passages = [prompt + text for text in texts]
        rows_of: dict[str, list[int]] = {}
        for i, text in enumerate(texts):
            rows_of.setdefault(text, []).append(i)
        different = [own[0] for own in rows_of.values()]
        if settings.embeddings is None:
            rows = embed(encoder, [passages[i] for i in different], "corpus", batch_size=size)
        else:
            rows = _stored_rows(settings.embeddings, encoder, passages)
            rows = rows if len(rows) == len(different) else rows[different]
    own = [[places[i] for i in same] for same in rows_of.values()]
    return _Searched(vectors, rows, own, list(rows_of))


def _places_and_texts(
    corpus: Corpus, columns: Sequence[str] | None, *, progress: bool
) -> tuple[Sequence[int | str], list[str]]:
    """Return the places (see :class:`Hit`) and the texts of a corpus."""
    if isinstance(corpus, (str, Path)):
        records = list(reading := _single_texts(Path(corpus), columns))
        if progress:
            print(reading, file=sys.stderr)
        named = all(r.id for r in records)  # lines and ids of one file could be taken for another
        return [r.id if named else r.line for r in records], [r.texts[0] for r in records]
    if not len(corpus):
        raise InputError("give a corpus with at least one text: this one is empty")
    texts = [""] * len(corpus) if isinstance(corpus, np.ndarray) else list(corpus)
    return range(len(texts)), texts


def _prompts(encoder: Encoder, query: str | None, passage: str | None) -> tuple[str, str]:
    """Return the prompts of queries and passages: the given prompts, or else the model's."""
    if isinstance(encoder, SentenceEncoder) and encoder.prompt and (query or passage):
        raise InputError(
            f"leave out the prompts that you gave: {encoder.name} puts the prompt "
            f"{encoder.prompt!r} before every text"
        )
    own = own_prompts(encoder)
    query = own[0] if query is None else query
    passage = own[1] if passage is None else passage
    check_prompts(unwrapped(encoder), query, passage)
    return query, passage


def _check_rows(rows: np.ndarray, count: int, d: int, encoder: Encoder) -> None:
    if rows.ndim != 2 or rows.shape != (count, d):
        raise InputError(
            f"encode the corpus again: the embeddings found have shape {rows.shape}, but "
            f"{encoder_name(encoder)} makes embeddings of shape {(count, d)}"
        )
    for first in range(0, len(rows), _BLOCK):
        finite = np.isfinite(rows[first : first + _BLOCK]).all(axis=1)
        if not finite.all():
            raise InputError(
                f"encode the corpus again: row {first + int(finite.argmin())} of the matrix has "
                "NaN or infinity"
            )


def _stored_rows(file: Path, encoder: Encoder, texts: Sequence[str]) -> np.ndarray:
    """Return the rows of an .npy file. Some texts are encoded to check that they match the rows."""
    check_file(file)
    try:
        rows = np.lib.format.open_memmap(file, mode="r")  # np.load would open a zip file too
    except Exception as error:  # numpy raises many kinds of errors on damaged headers
        raise InputError(
            f"write {file} with `isotrope encode`; numpy cannot read it as a matrix "
            f"({quoted(str(error), 80)})"
        ) from error
    if rows.dtype.kind != "f":
        raise InputError(
            f"write {file} with `isotrope encode`; the file now holds {rows.dtype}, not "
            "floating-point numbers"
        )
    places = np.unique(np.linspace(0, len(texts) - 1, _COMPARED).astype(np.int64))
    vectors = embed(encoder, [texts[i] for i in places])
    _check_rows(rows, len(texts), vectors.shape[1], encoder)
    for i, vector in zip(places, vectors, strict=True):
        length = float(np.linalg.norm(vector) * np.linalg.norm(rows[i]))
        if float(vector @ rows[i]) < _SAME * length or length == 0:
            raise InputError(
                f"encode the corpus again: row {i} of {file} is not the embedding of text {i + 1} "
                f"by {encoder_name(encoder)} (other model, file, prompt or pooling)"
            )
    return np.asarray(rows)
