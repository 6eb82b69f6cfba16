"""A tokenizer of words for tests of the data room, and stores built with it."""

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isotrope.data.records import Record
from isotrope.data.text.store_writer import StoreSettings, build
from isotrope.data.text.tokens import TokenStore

VOCABULARY = 1000


def tokenize(texts: list[str], max_length: int) -> tuple[list[list[int]], int]:
    """Return 1, one id per lower-case word, 2; a text of '@' has no tokens at all."""
    rows, truncated = [], 0
    for text in texts:
        ids = [zlib.crc32(word.encode()) % (VOCABULARY - 3) + 3 for word in text.lower().split()]
        truncated += len(ids) > max_length - 2
        rows.append([] if text == "@" else [1, *ids[: max_length - 2], 2])
    return rows, truncated


def records(*texts: str | tuple[str, ...] | None) -> list[Record]:
    """Return records of one file; None ends a document."""
    made: list[Record] = []
    opens = True
    for line, text in enumerate(texts, start=1):
        if text is not None:
            made.append(
                Record((text,) if isinstance(text, str) else text, Path("t.txt"), line, opens)
            )
        opens = text is None
    return made


Make = Callable[..., TokenStore]


def ids(text: str, max_length: int = 16) -> list[int]:
    return tokenize([text], max_length)[0][0]


def stored(store: TokenStore, column: int = 0) -> list[list[int]]:
    return [row.tolist() for row in store.rows(np.arange(len(store)), column)]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Build a store from texts, pairs and None (end of document)."""

    def made(
        texts: Sequence[str | tuple[str, ...] | None], groups: Sequence[str] = (), **settings: Any
    ) -> TokenStore:
        settings = {"vocabulary": VOCABULARY, "max_length": 16} | settings
        progress = settings.pop("progress", None)
        made = records(*texts)
        made[: len(groups)] = [r._replace(group=g) for r, g in zip(made, groups, strict=False)]
        return build(
            tmp_path / "store", made, tokenize, StoreSettings(**settings), progress=progress
        )

    return made
