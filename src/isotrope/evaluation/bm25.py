"""BM25, a ranking by words. It is the baseline that an encoder should beat."""

import importlib
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from isotrope.core.errors import InputError, needs_extra


def _package() -> ModuleType:
    with needs_extra("bm25", "bm25s"):
        return importlib.import_module("bm25s")


class BM25:
    """BM25 of the library bm25s (k1 1.5, b 0.75) on lower-case words.

    Stop words count, and words are not stemmed. Without embeddings, only retrieval can be scored.
    """

    name = "bm25"

    def fingerprint(self) -> str:
        """Return name and version of the library, by which stored scores are found again."""
        return f"bm25s-{_package().__version__}"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Raise an error, because BM25 has no embeddings."""
        raise InputError("score bm25 only with `--retrieval`, because it has no embeddings")

    def places(self, queries: Sequence[str], corpus: Sequence[str], top: int) -> np.ndarray:
        """Return, for each query, the indices of the ``top`` best texts of the corpus (n x top).

        The best text comes first. If the corpus has fewer than ``top`` texts, all are returned.
        """
        bm25s = _package()
        options: dict[str, object] = {"stopwords": [], "return_ids": False, "show_progress": False}
        ranking = bm25s.BM25()
        ranking.index(bm25s.tokenize(list(corpus), **options), show_progress=False)
        scored = map(ranking.get_scores, bm25s.tokenize(list(queries), **options))
        return np.stack([np.argsort(-scores, kind="stable")[:top] for scores in scored])
