"""Embeds texts with any object that has a method ``encode``; evaluations call no other method."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.progress import embedding, shown

Precision = Literal["float32", "int8", "binary"]
"""Precision of the coordinates of stored vectors."""

_LEAST = 1e-6  # share of the largest variance; a smaller variance is only rounding


@runtime_checkable
class Encoder(Protocol):
    """Any object with ``encode``: a SentenceEncoder, a SentenceTransformer, or a user's object.

    ``encode(texts, batch_size=...)`` takes a list of n texts and returns n vectors of one size, as
    an array or anything that numpy converts to an array. If ``encode`` takes ``progress`` or
    ``show_progress_bar``, this argument is passed too.
    """

    @property
    def encode(self) -> Callable[..., Any]:
        """The method that embeds; the class describes its arguments."""
        ...


def embed(
    encoder: Encoder, texts: Sequence[str], what: str = "", *, batch_size: int = 128
) -> np.ndarray:
    """Return the embeddings of ``texts`` (n x d, float32). Each distinct text is encoded once.

    ``what`` names the texts in the title of the encoder's progress bar.
    """
    with embedding(what):
        if isinstance(encoder, CachedEncoder):  # it encodes each text only once
            return encoder.encode(texts)
        places: dict[str, int] = {}
        where = [places.setdefault(text, len(places)) for text in texts]
        vectors = encode_all(encoder, list(places), batch_size)
    return vectors if len(places) == len(where) else vectors[where]


def encode_all(encoder: Encoder, inputs: list[str] | np.ndarray, batch_size: int) -> np.ndarray:
    """Call the encoder on texts or pictures, and check the result (n x d, float32)."""
    if not isinstance(encoder, Encoder):
        raise InputError(f"give an encoder with a method encode: {type(encoder).__name__} has none")
    taken = inspect.signature(encoder.encode).parameters
    options: dict[str, Any] = {"batch_size": batch_size} if "batch_size" in taken else {}
    options |= {name: shown() for name in ("progress", "show_progress_bar") if name in taken}
    returned = encoder.encode(inputs, **options)
    try:
        with np.errstate(over="ignore"):  # values too large for float32 are refused below
            vectors = np.asarray(returned, dtype=np.float32)
    # for example tensors on a GPU or with a gradient, or rows of different sizes
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{encoder_name(encoder)}.encode must return an array of numbers; numpy cannot convert "
            f"the {type(returned).__name__} that it returned ({str(error)[:150]})"
        ) from error
    if vectors.ndim != 2 or len(vectors) != len(inputs):
        raise InputError(
            f"{encoder_name(encoder)}.encode must return one vector for each of {len(inputs)} "
            f"inputs; it returned an array of shape {vectors.shape}"
        )
    if not np.isfinite(vectors).all():
        raise InputError(
            f"correct or replace {encoder_name(encoder)}: its encode returned numbers that are "
            "not finite (NaN or infinite), which cannot be scored"
        )
    return vectors


class CachedEncoder:
    """An encoder that embeds each text once, even if the text occurs in several calls.

    All vectors stay in memory, so use it for the sentences of a few tasks, not for a corpus.

    Args:
        encoder: Any object with ``encode``.
        batch_size: Number of texts in each batch.
        known: Texts that are embedded already: a dict from text to vector.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        batch_size: int = 128,
        known: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.name = encoder_name(encoder)
        self.encoder = encoder
        self._batch_size = batch_size
        self._vectors: dict[str, np.ndarray] = dict(known or {})

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return the embeddings of ``texts`` (n x d, float32)."""
        new = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        if new:
            vectors = encode_all(self.encoder, new, self._batch_size)
            self._vectors.update(zip(new, vectors, strict=True))
        return np.stack([self._vectors[text] for text in texts])

    def fingerprint(self) -> str | None:
        """Return the fingerprint of the inner encoder."""
        return fingerprint_of(self.encoder)


class Truncated:
    """An encoder whose vectors take fewer bytes: fewer coordinates, or fewer bits per coordinate.

    The first coordinates are kept, as with ``truncate_dim`` of sentence-transformers, and rounded,
    as with ``quantize_embeddings`` of that library. ``encode`` returns the rounded values.

    Args:
        encoder: Any object with ``encode``.
        dimension: Number of coordinates to keep. The shortened vectors are not normalised.
        precision: ``float32`` (4 bytes per coordinate), ``int8`` (1 byte) or ``binary`` (1 bit, the
            sign). ``int8`` divides the range of a coordinate into 256 steps; the first call of
            ``encode`` decides the range.

    Attributes:
        name: Name of the encoder, with dimension and precision.
    """

    def __init__(self, encoder: Encoder, dimension: int, precision: Precision = "float32") -> None:
        if dimension < 1:
            raise InputError(f"keep at least 1 coordinate; found {dimension}")
        self.encoder, self._dimension, self._precision = encoder, dimension, precision
        size = -(-dimension * {"float32": 32, "int8": 8, "binary": 1}[precision] // 8)
        self._stored = f"{dimension} x {precision} ({size:,} bytes)"
        self.name = f"{encoder_name(encoder)}, {self._stored}"
        self._ranges: np.ndarray | None = None

    def encode(self, texts: Sequence[str], *, batch_size: int = 128) -> np.ndarray:
        """Return the rounded embeddings of ``texts`` (n x dimension, float32)."""
        vectors = embed(self.encoder, texts, batch_size=batch_size)
        if vectors.shape[1] < self._dimension:
            raise InputError(
                f"keep at most {vectors.shape[1]} coordinates, because "
                f"{encoder_name(self.encoder)} has no more; found {self._dimension}"
            )
        vectors = np.ascontiguousarray(vectors[:, : self._dimension])
        if self._precision == "binary":
            return np.where(vectors > 0, np.float32(1), np.float32(-1))
        if self._precision == "int8":
            if self._ranges is None:
                self._ranges = np.stack([vectors.min(axis=0), vectors.max(axis=0)])
            low, high = self._ranges
            step = ((high - low) / 255).astype(np.float32)  # 0 for a constant coordinate
            stored = np.clip(np.floor((vectors - low) / np.where(step > 0, step, 1)), 0, 255)
            vectors = np.asarray(low + (stored + np.float32(0.5)) * step, np.float32)
        return vectors

    def fingerprint(self) -> str | None:
        """Return a fingerprint; None for int8, or if the inner encoder has no fingerprint."""
        # int8 depends on the first call
        inner = None if self._precision == "int8" else fingerprint_of(self.encoder)
        return None if inner is None else f"{inner}, {self._stored}"


def whitening(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean m and a matrix W such that (rows - m) W has identity covariance.

    W leaves out directions whose variance is below a millionth of the largest variance: division by
    so small a standard deviation would amplify rounding errors.

    Args:
        rows: Embeddings, n x d, n >= 2.

    Returns:
        The mean m (d values) and the matrix W (d x k with k <= d), float64.

    Example:
        >>> rows = np.array([[2.0, 1.0], [-2.0, 1.0], [0.0, 3.0], [0.0, -1.0]])
        >>> mean, matrix = whitening(rows)
        >>> np.cov((rows - mean) @ matrix, rowvar=False).round(12).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    given = np.asarray(rows)
    rows = given.astype(np.float64)
    if rows.ndim != 2:
        raise ValueError(f"whiten a matrix of embeddings, n x d; found shape {rows.shape}")
    if len(rows) < 2:
        raise ValueError(f"whiten at least two embeddings; found {len(rows)}")
    if not np.isfinite(rows).all():
        raise ValueError("leave out embeddings with NaN or infinity, which prevent whitening")
    mean = rows.mean(axis=0)
    variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(rows - mean, rowvar=False)))
    used = variances > _LEAST * variances.max()
    # equal rows may differ by the rounding of the encoder and of the mean
    unit = 8 * np.finfo(given.dtype if given.dtype.kind == "f" else np.float64).eps
    if not variances.max() > (unit * np.abs(rows).max()) ** 2:
        raise ValueError(f"whiten embeddings that differ; all {len(rows)} are equal")
    return mean, directions[:, used] / np.sqrt(variances[used])


class WhitenedEncoder:
    """An encoder whose embeddings are whitened: mean 0 and identity covariance on ``texts``.

    Args:
        encoder: Any object with ``encode``.
        texts: Texts whose embeddings give the mean and the covariance. If scored texts are among
            them, call the score transductive when you report it.
    """

    def __init__(self, encoder: Encoder, texts: Sequence[str]) -> None:
        self.encoder = encoder
        self._mean, self._matrix = whitening(np.asarray(encoder.encode(list(texts))))

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return n x k embeddings, float64."""
        rows = np.asarray(self.encoder.encode(texts), dtype=np.float64) - self._mean
        return np.asarray(rows @ self._matrix)


def stored(
    encoder: Encoder,
    dimensions: Sequence[int] = (),
    precisions: Sequence[Precision] = (),
    *,
    batch_size: int = 128,
) -> list[Encoder]:
    """Return encoders for all combinations of dimension and precision, for ``isotrope.compare``.

    Each text is embedded once for all encoders. If ``dimensions`` is empty, all coordinates are
    kept; if ``precisions`` is empty, they are float32.

    Returns:
        A list of encoders. The first encoder has the full vectors in float32.
    """
    shared = CachedEncoder(encoder, batch_size=batch_size)
    full = embed(shared, ["one text"]).shape[1]
    for dimension in dimensions:  # too large a number is an error before anything is scored
        Truncated(shared, dimension).encode(["one text"])
    chosen = [
        (dimension, precision)
        for precision in precisions or ("float32",)
        for dimension in dimensions or (full,)
    ]
    others = [pair for pair in dict.fromkeys(chosen) if pair != (full, "float32")]
    return [Truncated(shared, *pair) for pair in [(full, "float32"), *others]]


def unwrapped(encoder: Encoder) -> Encoder:
    """Return the encoder that a cached, shortened or whitened encoder calls."""
    while isinstance(encoder, (CachedEncoder, Truncated, WhitenedEncoder)):
        encoder = encoder.encoder
    return encoder


def fingerprint_of(encoder: Encoder) -> str | None:
    """Return the fingerprint of an encoder; None if it has no method ``fingerprint``."""
    identify = getattr(encoder, "fingerprint", None)
    return identify() if callable(identify) else None


def encoder_name(encoder: Encoder) -> str:
    """Return the encoder's name or, without one, the name of its class."""
    name = getattr(encoder, "name", None)
    return name if isinstance(name, str) else type(encoder).__name__
