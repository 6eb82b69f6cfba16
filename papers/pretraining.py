"""Pre-training: a small BERT that learns to fill in masked word pieces, and nothing else.

It begins at word vectors in closed form, by which words occur near each other. A small encoder that
learns its words by filling them in alone needs more text than one core can read: after 2,000 steps
its vectors are still nearly those that were drawn. The factors of the pointwise mutual information
are what such training tends to (Levy and Goldberg 2014, "Neural word embedding as implicit matrix
factorization"), and take a minute. They come from the same text, and no pair of sentences has a
part in them.

There is no dropout: one pass over the text leaves nothing to overfit. The order of the sentences
and the masks are functions of (seed, step): a run that was stopped goes on from its last
checkpoint, and ends as it would have ended.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isotrope.core import atomic_replace
from isotrope.encoders import SentenceEncoder

_BLOCK = 50  # batches whose sentences are sorted by length together
_CHUNK = 10_000  # sentences tokenized at once
_WINDOW = 5  # pieces to each side
_SMOOTHING = 0.75  # exponent of the counts of contexts, Levy et al. 2015, section 3.1
_COUNTED = 2_000_000  # pairs counted at once
_SPECIAL = 5  # the first ids of the vocabulary: [PAD], [UNK], [CLS], [SEP], [MASK]


@dataclass(frozen=True, kw_only=True)
class PretrainingRecipe:
    """How a raw encoder is made.

    Attributes:
        layers: of the transformer.
        width: of its states; a head of the attention has 64 of them.
        steps: of AdamW, with betas 0.9 and 0.98 and weight decay 0.01.
        batch_size: sentences a step.
        max_length: tokens that a sentence is cut to.
        vocabulary: word pieces.
        deviation: of the components of the word vectors at the beginning.
        learning_rate: peak, after ``warmup`` steps; it rises and falls linearly.
        warmup: steps.
        share: of the word pieces that are to be filled in.
        every: steps between checkpoints.
    """

    layers: int
    width: int
    steps: int
    batch_size: int = 128
    max_length: int = 32
    vocabulary: int = 8_000
    deviation: float = 0.03
    learning_rate: float = 3e-3
    warmup: int = 200
    share: float = 0.15
    every: int = 125


class MaskedLM(nn.Module):
    """A BERT with what fills in word pieces on top; the output weights are the word vectors.

    Args:
        bert: the transformer of a sentence encoder, trained in place.
        width: of its states.
        vocabulary: word pieces.
    """

    def __init__(self, bert: Any, width: int, vocabulary: int) -> None:  # noqa: ANN401 - transformers'
        super().__init__()
        self.bert = bert
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, seen: Tensor, attention: Tensor, ids: Tensor, where: Tensor) -> Tensor:
        """Return the mean cross entropy of the pieces to be filled in."""
        states = self.bert(input_ids=seen, attention_mask=attention).last_hidden_state[where]
        words = self.bert.embeddings.word_embeddings.weight
        logits = self.transform(states) @ words.T + self.bias
        total = nn.functional.cross_entropy(logits, ids[where], reduction="sum")
        return total / max(1, len(logits))


def masked(
    ids: Tensor, *, share: float, size: int, mask: int, draw: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Mask word pieces: of those chosen 80% become [MASK], 10% another piece, 10% stay.

    Source: Devlin et al. 2019, section 3.1.
    """
    chance, how = (torch.rand(ids.shape, generator=draw) for _ in range(2))
    other = torch.randint(_SPECIAL, size, ids.shape, generator=draw)
    chosen = (chance < share) & (ids >= _SPECIAL)
    seen = torch.where(chosen & (how < 0.8), mask, ids)
    return torch.where(chosen & (how >= 0.9), other, seen), chosen


def rate_at(recipe: PretrainingRecipe, step: int) -> float:
    """Return the learning rate of a step, counted from 0."""
    rise = (step + 1) / recipe.warmup
    fall = (recipe.steps - step) / max(1, recipe.steps - recipe.warmup)
    return recipe.learning_rate * min(1.0, rise, fall)


@dataclass(frozen=True)
class Tokens:
    """Sentences as ids: those of sentence i are ``ids[starts[i] : starts[i + 1]]``."""

    ids: np.ndarray
    starts: np.ndarray

    def batch(self, recipe: PretrainingRecipe, seed: int, step: int) -> list[np.ndarray]:
        """Return the sentences of a step, all of about one length."""
        block, place = divmod(step, _BLOCK)
        draw = np.random.default_rng([seed, block])
        sentences, count = len(self.starts) - 1, _BLOCK * recipe.batch_size
        rows = draw.choice(sentences, size=count, replace=count > sentences)
        rows = rows[np.argsort(np.diff(self.starts)[rows], kind="stable")]
        chosen = rows.reshape(_BLOCK, recipe.batch_size)[draw.permutation(_BLOCK)[place]]
        return [self.ids[self.starts[i] : self.starts[i + 1]] for i in chosen]


def initialized(
    recipe: PretrainingRecipe, texts: Sequence[str], folder: Path, seed: int, device: str = "cpu"
) -> tuple[SentenceEncoder, Tokens]:
    """Return an encoder before its training, pooling by CLS, and the texts as its ids.

    Its word vectors are those of :func:`word_vectors`, everything else is
    drawn. Both are kept in ``folder``, so that a run that goes on does not make them again.
    """
    start, file = folder / "start", folder / "tokens.npz"
    if not start.is_dir():
        encoder = SentenceEncoder.scratch(
            texts,
            seed=seed,
            vocabulary=recipe.vocabulary,
            layers=recipe.layers,
            width=recipe.width,
            heads=max(1, recipe.width // 64),
        )
        tokens = _tokenized(encoder, texts, recipe.max_length)
        with atomic_replace(file) as temporary, temporary.open("wb") as handle:
            np.savez(handle, ids=tokens.ids, starts=tokens.starts)
        size = len(encoder.tokenizer)
        counts = cooccurrences(tokens.ids, tokens.starts, size, first=_SPECIAL)
        vectors = word_vectors(counts, recipe.width, deviation=recipe.deviation, seed=seed)
        bert: Any = encoder.model[0].model
        words = bert.embeddings.word_embeddings.weight.data
        occur = vectors.any(dim=1)
        words[occur] = vectors[occur]
        encoder.save(start)
    encoder = SentenceEncoder.load(start, pooling="cls", device=device)
    with np.load(file) as stored:
        return encoder, Tokens(stored["ids"], stored["starts"])


def _tokenized(encoder: SentenceEncoder, texts: Sequence[str], max_length: int) -> Tokens:
    pieces, lengths = [], [0]
    for first in range(0, len(texts), _CHUNK):
        rows, _ = encoder.tokenize(texts[first : first + _CHUNK], max_length)
        pieces.append(np.fromiter(itertools.chain.from_iterable(rows), np.uint16))
        lengths += [len(row) for row in rows]
    return Tokens(np.concatenate(pieces), np.cumsum(lengths))


def pretrain(
    recipe: PretrainingRecipe,
    encoder: SentenceEncoder,
    tokens: Tokens,
    folder: Path,
    *,
    seed: int,
    measure: Callable[[SentenceEncoder], Mapping[str, float]],
    accept: Callable[[Mapping[str, float]], bool],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Train the encoder in place, from the last checkpoint if there is one."""
    torch.manual_seed(seed)
    model = MaskedLM(encoder.model[0].model, recipe.width, len(encoder.tokenizer)).eval()
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer}
    step, before, course = _restored(parts, folder / "checkpoint.pt")
    began, losses = time.process_time(), []
    while step < recipe.steps:
        losses.append(_step(recipe, encoder, model, optimizer, tokens, seed, step))
        step += 1
        if step % recipe.every and step < recipe.steps:
            continue
        measures = {"step": step, "loss": float(np.mean(losses)), **measure(encoder)}
        row = {name: round(value, 4) for name, value in measures.items()}
        course.append(row)
        losses.clear()
        encoder.save(folder / f"step-{step}")
        if accept(row):
            encoder.save(folder / "wanted")
        seconds = before + time.process_time() - began
        line = ", ".join(f"{name} {value:.4g}" for name, value in row.items())
        tell(f"{line}, {seconds:.0f} s")
        state = {name: part.state_dict() for name, part in parts.items()}
        with atomic_replace(folder / "checkpoint.pt") as temporary:
            torch.save({**state, "step": step, "seconds": seconds, "course": course}, temporary)
    last = max((int(row["step"]) for row in course if accept(row)), default=0)
    seconds = round(before + time.process_time() - began, 1)
    return {"step": last, "cpu_seconds": seconds, "course": course}


def _restored(parts: dict[str, Any], file: Path) -> tuple[int, float, list[dict[str, float]]]:
    """Put a model and its optimiser where they were; return step, processor seconds and course."""
    if not file.is_file():
        return 0, 0.0, []
    checkpoint = torch.load(file, weights_only=True, map_location="cpu")
    for name, part in parts.items():
        part.load_state_dict(checkpoint[name])
    return checkpoint["step"], checkpoint["seconds"], checkpoint["course"]


def _step(
    recipe: PretrainingRecipe,
    encoder: SentenceEncoder,
    model: MaskedLM,
    optimizer: torch.optim.Optimizer,
    tokens: Tokens,
    seed: int,
    step: int,
) -> float:
    """Take a step; whatever is random in it follows from (seed, step)."""
    batch = encoder.pad(tokens.batch(recipe, seed, step))
    ids, attention = batch["input_ids"], batch["attention_mask"]
    seen, where = masked(
        ids,
        share=recipe.share,
        size=len(encoder.tokenizer),
        mask=int(encoder.tokenizer.mask_token_id or 0),
        draw=torch.Generator().manual_seed(1_000_003 * seed + step),
    )
    for group in optimizer.param_groups:
        group["lr"] = rate_at(recipe, step)
    loss: Tensor = model(*(x.to(encoder.device) for x in (seen, attention, ids, where)))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def cooccurrences(
    ids: np.ndarray, starts: np.ndarray, size: int, *, first: int = 0, window: int = _WINDOW
) -> np.ndarray:
    """Count how often two pieces stand in one sentence, at most ``window`` places apart.

    Example:
        >>> cooccurrences(np.array([0, 1, 2, 1]), np.array([0, 3, 4]), 3, window=1).tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    counts = np.zeros(size * size, dtype=np.float32)
    sentence = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    for apart in range(1, window + 1):
        here = np.flatnonzero(sentence[apart:] == sentence[:-apart])
        for begin in range(0, len(here), _COUNTED):
            at = here[begin : begin + _COUNTED]
            a, b = ids[at].astype(np.int64), ids[at + apart].astype(np.int64)
            kept = (a >= first) & (b >= first)
            cells, times = np.unique(a[kept] * size + b[kept], return_counts=True)
            counts[cells] += times
    square = counts.reshape(size, size)
    return square + square.T


def word_vectors(counts: np.ndarray, width: int, *, deviation: float, seed: int) -> Tensor:
    """Return a vector for every piece: factors of the positive pointwise mutual information."""
    totals = counts.sum(axis=1, dtype=np.float64)
    contexts = totals**_SMOOTHING
    counts /= np.maximum(totals, 1).astype(np.float32)[:, None]
    counts /= np.maximum(contexts / max(1.0, contexts.sum()), 1e-30).astype(np.float32)
    np.log(counts, out=counts, where=counts > 0)
    np.maximum(counts, 0, out=counts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        left, values, _ = torch.svd_lowrank(torch.from_numpy(counts), q=width, niter=4)
    vectors = left * values.sqrt()
    return vectors * (deviation / vectors.square().mean().sqrt())
