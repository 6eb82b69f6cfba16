"""Makes the training data of the benchmark, and its encoders that are broken before training.

The tuning part reads the documentation installed on this machine. The others read sentences of
Wikipedia, paraphrases of STS-B or MRPC, and CIFAR-10 beside the checkout (../shared/data), where
these are.
"""

import gzip
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from examples.docstrings import collect
from isotrope.core.files import write_text
from isotrope.data.lines import lines
from isotrope.encoders.sentence import SentenceEncoder

_LINES = 2000  # of every corpus
_DEV = 100  # pairs held out to score by
_WORDS = 20  # that are kept of a docstring's second half
_STOCK = 20  # sentences that the copies repeat

Pairs = Sequence[tuple[str, str]]
Row = TypeVar("Row")


def tuning_texts(folder: Path, shared: Path, seed: int) -> None:
    """Write the tuning part's corpora: documentation, as texts and as pairs."""
    texts = [(item.query, " ".join(item.target.split()[:_WORDS])) for item in collect()]
    texts = _shuffled(texts, seed)
    _write_pairs(folder, texts[: _LINES + _DEV], seed)
    _write_texts(folder, [text for text, _ in texts[-_LINES:]], seed)


def judged_texts(folder: Path, shared: Path, seed: int) -> None:
    """Write the corpora of the other parts: Wikipedia as texts, paraphrases as pairs.

    Even seeds take the pairs of STS-B, odd ones those of MRPC.
    """
    with gzip.open(shared / "corpus" / "wiki_en_1m.txt.gz", "rt", encoding="utf-8") as wikipedia:
        start = 10_000 * seed
        sentences = [line.strip() for line in islice(wikipedia, start, start + _LINES)]
    file, least = ("transfer/mrpc", 1) if seed % 2 else ("sts/stsb", 4)
    rows = _rows(shared / file / "train.tsv")
    texts = [(a, b) for score, a, b in rows if float(score) >= least]
    _write_pairs(folder, _shuffled(texts, seed), seed)
    _write_texts(folder, sentences, seed)
    scored = _rows(shared / "sts" / "stsb" / "dev.tsv")[:200]
    _write(folder / "sts.tsv", ("\t".join(row) for row in scored))


def _write_pairs(folder: Path, pairs: Pairs, seed: int) -> None:
    """Write pairs for training, the same pairs shuffled, and pairs for the dev score."""
    clean = [(a.replace("\t", " "), b.replace("\t", " ")) for a, b in pairs]
    trained, held = clean[_DEV:], clean[:_DEV]
    mixed = [(a, b) for (a, _), (_, b) in zip(trained, _shuffled(trained, seed), strict=True)]
    for name, rows in (("pairs", trained), ("mixed", mixed), ("dev", held)):
        _write(folder / f"{name}.tsv", (f"{a}\t{b}" for a, b in rows))


def _write_texts(folder: Path, texts: Sequence[str], seed: int) -> None:
    """Texts, and as many of which half are copies of a few: with other numbers, so that no hash of
    letters and digits finds them, as in boilerplate.
    """
    draw = np.random.default_rng(seed)
    half = len(texts) // 2
    stock = [text for text in texts[half:] if 5 < len(text.split()) < 16][:_STOCK]
    which, numbers = draw.integers(len(stock), size=half), draw.integers(1, 1000, size=half)
    copies = [f"{stock[i]} ({number})" for i, number in zip(which, numbers, strict=True)]
    _write(folder / "texts.txt", texts)
    _write(folder / "copies.txt", _shuffled([*texts[:half], *copies], seed))


def _shuffled(rows: Sequence[Row], seed: int) -> list[Row]:
    return [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]


def _rows(path: Path) -> list[list[str]]:
    return [text.split("\t") for _, text in lines(path)]


def _write(path: Path, texts: Iterable[str]) -> None:
    write_text(path, "".join(f"{text}\n" for text in texts))


def _last_norm(encoder: SentenceEncoder) -> nn.LayerNorm:
    return [module for module in encoder.modules() if isinstance(module, nn.LayerNorm)][-1]


def _constant(encoder: SentenceEncoder) -> None:
    """Give every token of every text one vector, too long for a few steps to turn it."""
    norm = _last_norm(encoder)
    norm.weight.zero_()
    norm.bias.fill_(1)


def _line(encoder: SentenceEncoder) -> None:
    """Let texts differ in one coordinate only."""
    norm = _last_norm(encoder)
    norm.weight[1:] = 0
    norm.weight[0] = 5


def _long(encoder: SentenceEncoder) -> None:
    """Make embeddings a hundred times as long, with the same directions."""
    norm = _last_norm(encoder)
    norm.weight.mul_(100)
    norm.bias.mul_(100)


BREAKS: dict[str, Callable[[SentenceEncoder], None]] = {
    "constant": _constant,
    "line": _line,
    "long": _long,
}
"""The ways to break a good encoder before it is trained, by name."""


@torch.no_grad()
def broken_model(source: Path | str, what: str, folder: Path) -> None:
    """Write a copy of an encoder, broken in one of the ways of ``BREAKS``."""
    encoder = SentenceEncoder.load(source, device="cpu")
    BREAKS[what](encoder)
    encoder.save(folder)
