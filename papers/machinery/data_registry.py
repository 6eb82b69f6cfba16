"""DataRegistry: resolves the names of data and encoders in a job to local files.

Jobs never hold paths, so that they can be continued on another machine. A corpus is ``wiki:N`` (the
first N sentences of the Wikipedia file), ``wiki-short:N`` (the first N of at most 14 words, of
which a training step costs half) or ``docs:N`` (N sentences of the documentation of Python's
library). Scored pairs are ``sts``, the seven real tasks, or ``docs``, made of documentation, where
nothing but this package is at hand. Anything else is what the paper names, and is looked for in the
folder of data under that name; ``FILE:N`` is its first N lines, so that those that follow are held
out. Encoders whose name begins with ``raw-`` are those of ``python -m papers encoder``: what is in
papers/encoders, or else what was made on this machine.
"""

import functools
import gzip
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from examples.docstrings import STANDARD_LIBRARY, Documented, collect
from isotrope.core import InputError, atomic_replace
from isotrope.data import (
    Examples,
    Subset,
    TransferTask,
    lines,
    load_sts,
    load_sts_file,
    load_transfer,
)
from isotrope.encoders import INSTALLED, resolve

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
"""Of scored pairs."""

_SHORT = 14  # words
_WIKIPEDIA = "corpus/wiki_en_1m.txt.gz"
_PAIRS = 24  # of documentation, for each of the seven names
_LABELLED = 240


def cache_folder() -> Path:
    """Return the folder of generated files that are too large for the repository."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "isotrope" / "papers"


STORED = Path(__file__).resolve().parents[1] / "encoders"
"""Raw encoders whose weights are in the repository: making one anew on another processor rounds
differently, and gives another encoder."""

RAW = "raw-2x128-pmi"
"""The one of these that trainings begin with unless another is named."""

_FLOWERS, _TAIL = "flowers102", "flowers102-long-tailed"
STARTS = {"disturbed": "standin-mlm", "trained": "all-MiniLM-L6-v2"}
"""Encoders that have seen pairs of sentences, by the names that tables of text have for them."""


@dataclass(frozen=True)
class DataRegistry:
    """Where data are and where those that are made go.

    Attributes:
        data: folder with sts/, transfer/, corpus/, cifar10/ and standin-mlm/, or None.
        generated: folder for corpora that are made.
        hub: whether an encoder that is not in ``data`` may be fetched from the Hugging Face hub.
    """

    data: Path | None
    generated: Path
    hub: bool = False

    def missing(self, name: str) -> str | None:
        """Return the requirement of a name that is missing here, or None."""
        path = self._given(name)
        if path is None:
            return None
        if self.data is None:
            return f"{name}: no folder of data was given (--data DIR)"
        if name == _TAIL and not path.exists():
            path = path.with_name(_FLOWERS)  # which it is made of
        return None if path.exists() else f"{name}: there is no {path}"

    def _given(self, name: str) -> Path | None:
        """The file or folder of a name that needs one."""
        data = self.data or Path("DATA")
        if name.startswith("raw-"):
            stored = STORED / name
            return stored if stored.is_dir() else cache_folder() / "encoders" / name
        kind = name.partition(":")[0]
        if kind in ("docs", "scratch", *INSTALLED, "digits"):
            return None
        sources = {"wiki": _WIKIPEDIA, "wiki-short": _WIKIPEDIA}
        return data / sources.get(kind, kind)

    def _here(self, name: str) -> Path:
        lacking = self.missing(name)
        path = self._given(name)
        if lacking or path is None:
            raise InputError(f"{lacking or name}; see docs/reproduce.md for what is needed")
        return path

    def texts(self, name: str) -> Path:
        """Return the file of a corpus, one sentence a line; made if need be."""
        kind, _, count = name.partition(":")
        is_file = kind not in ("wiki", "wiki-short", "docs")
        if is_file and not count:
            return self._here(name)
        if not count.isdecimal() or int(count) < 1:
            raise InputError(f"a corpus is {kind}:N with a number of sentences; found {name!r}")
        file = self.generated / f"{kind}-{count}.txt"
        if not file.is_file():
            sentences: Iterable[str]
            if is_file:
                sentences = (text for _, text in lines(self._here(kind)))
            else:
                sentences = _documentation() if kind == "docs" else self._wikipedia(kind)
            with atomic_replace(file) as temporary:
                first = list(islice(sentences, int(count)))
                if len(first) < int(count):
                    raise InputError(f"{name}: there are only {len(first):,} such sentences here")
                temporary.write_text("\n".join(first) + "\n", encoding="utf-8")
        return file

    def _wikipedia(self, kind: str) -> Iterator[str]:
        most = _SHORT if kind == "wiki-short" else 10**9
        with gzip.open(self._here(kind), "rt", encoding="utf-8") as file:
            yield from (line.strip() for line in file if len(line.split()) <= most)

    def encoder(self, name: str) -> str:
        """Return the argument of ``isotrope.load``: a folder, an installed name or a hub id."""
        path = self._given(STARTS.get(name, name))
        return str(path) if path is not None and path.exists() else STARTS.get(name, name)

    def missing_encoder(self, name: str) -> list[str]:
        """Return the missing requirement of an encoder; one of the hub is fetched if allowed."""
        name = STARTS.get(name, name)
        if name in ("scratch", *INSTALLED):
            return []
        if name == "standin-mlm":
            return [lacking] if (lacking := self.missing(name)) else []
        path = self._given(name)
        if path is not None and path.exists():
            return []
        if name.startswith("raw-"):
            size, _, seed = name.partition("-seed")
            command, made = f"encoder {size} --seed {seed or 0}", f"{size}-seed{seed or 0}"
            command, made = ("gpu", name) if name.endswith("-gpu") else (command, made)
            return [f"{name}: `python -m papers {command}` makes {made}"]
        if self.hub:
            return _fetched(name)
        return [f"{name}: of the Hugging Face hub, or a folder of that name in DIR"]

    def images(self, name: str) -> str:
        """Return the data argument of trainings on images."""
        if name == "digits":
            return name
        folder = self._here(name)
        if name == _TAIL and not folder.exists():
            folder, flowers = self.generated / name, folder.with_name(_FLOWERS)
            if not folder.exists():
                from papers.draganov2024.flowers_tail import write_long_tail

                write_long_tail(flowers, folder)
        return str(folder)

    def sts(self, name: str) -> dict[str, list[Subset]]:
        """Return the seven tasks."""
        return _made_pairs() if name == "docs" else load_sts(self._here(name))

    def sts_dev(self, name: str) -> Subset:
        """Return the development set of STS-B."""
        if name == "docs":
            return _made_pairs()[TASKS[5]][0]
        return load_sts_file(self._here(name) / "stsb" / "dev.tsv")

    def transfer(self, name: str, tasks: Sequence[str]) -> dict[str, TransferTask]:
        """Return tasks of classification."""
        return _made_tasks(tasks) if name == "docs" else load_transfer(self._here(name), tasks)


@functools.cache
def _fetched(name: str) -> list[str]:
    try:
        resolve(name)
    except InputError as error:
        return [str(error)]
    return []


@functools.cache
def _collected() -> tuple[Documented, ...]:
    items = sorted(collect((STANDARD_LIBRARY,)), key=lambda item: item.name)
    order = np.random.default_rng(0).permutation(len(items))
    return tuple(items[i] for i in order)


def _documentation() -> list[str]:
    return [" ".join(item.query.split()) for item in _collected()]


def _made_pairs() -> dict[str, list[Subset]]:
    """First sentence and rest of one docstring score 5, of another in the same module 2, else 0."""
    items, tasks = _collected(), {}
    for place, task in enumerate(TASKS):
        part = items[place * _PAIRS : (place + 1) * _PAIRS]
        near = [_neighbour(item, items) for item in part[::3]]
        second = [
            *(item.target for item in part[::3]),
            *(item.query for item in near),
            *(item.query for item in part[1::3]),
        ]
        first = [item.query for item in part[::3]] * 3
        scores = np.repeat([5.0, 2.0, 0.0], len(first) // 3)
        short = [" ".join(text.split()[:_SHORT]) for text in second]
        tasks[task] = [Subset(task, "docs", "test", scores, first, short)]
    return tasks


def _neighbour(item: Documented, items: Sequence[Documented]) -> Documented:
    module = item.name.rpartition(".")[0]
    return next((o for o in items if o is not item and o.name.startswith(module)), items[0])


def _made_tasks(names: Sequence[str]) -> dict[str, TransferTask]:
    """Tell documentation that says what is returned from other documentation."""
    rows = [(int(item.query.startswith("Return")), item.query) for item in _collected()]
    ones = [text for label, text in rows if label][: _LABELLED // 2]
    others = [text for label, text in rows if not label][: _LABELLED // 2]
    count = min(len(ones), len(others))
    texts = [text for pair in zip(ones[:count], others[:count], strict=True) for text in pair]
    labels = np.tile(np.array([1, 0]), count)
    ends = [0, count, 3 * count // 2, 2 * count]
    splits = {
        split: Examples(labels[a:b], texts[a:b], [])
        for split, a, b in zip(("train", "dev", "test"), ends[:-1], ends[1:], strict=True)
    }
    return {name: TransferTask(name, ("0", "1"), splits) for name in names}
