"""Forms the held-out batches of 128 texts, in two views, on which Li et al. (2024) measure a model.

The paper's statistics (appendix A.2) are of text that was not trained on (``--holdout 0.1``), with
dropout on: its masks are what makes the two views of a text differ.
"""

from collections.abc import Sequence

import torch

from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.encoders.sentence import SentenceEncoder


def held_out(
    encoder: SentenceEncoder,
    texts: Sequence[str] | Sequence[tuple[str, str]],
    *,
    batch_size: int = 128,
    max_length: int | None = None,
    seed: int = 0,
) -> list[Views]:
    """Return the embeddings of texts or pairs in batches; an incomplete last batch is left out."""
    if not 2 <= batch_size <= len(texts):
        raise InputError(
            f"batches of {batch_size} cannot be made of {len(texts)} texts; give more texts, or a "
            "smaller batch size of at least 2"
        )
    pairs = [(text, text) if isinstance(text, str) else text for text in texts]
    modes = [(module, module.training) for module in encoder.modules()]
    starts = range(0, len(pairs) - batch_size + 1, batch_size)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder.train()
            batches = [pairs[start : start + batch_size] for start in starts]
            return [_views(encoder, batch, max_length) for batch in batches]
    finally:
        for module, mode in modes:
            module.training = mode


def _views(
    encoder: SentenceEncoder, pairs: Sequence[tuple[str, str]], max_length: int | None
) -> Views:
    ids, _ = encoder.tokenize(
        [text for side in zip(*pairs, strict=True) for text in side],
        min(encoder.max_length, max_length or encoder.max_length),
    )
    rows = encoder(**{name: x.to(encoder.device) for name, x in encoder.pad(ids).items()})
    return Views(*rows.float().cpu().chunk(2))
