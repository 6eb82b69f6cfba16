"""Measures the facts about data and encoder from which ``--recipe auto`` chooses settings."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import numpy as np
import torch

from isotrope.core.errors import InputError
from isotrope.core.progress import bar, showing
from isotrope.data.schemas import Record
from isotrope.data.text.repeats import group_mark, hash64, joined_groups, near_identical
from isotrope.data.text.views import FEWEST, ONE_GROUP, Former, Views
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.dev_score import LEAST, USABLE, usable
from isotrope.evaluation.retrieval import own_prompts
from isotrope.evaluation.sts import spearman
from isotrope.paradigm import registry
from isotrope.training.settings import TrainSettings
from isotrope.training.text_data import held_out_of, records_of

T = TypeVar("T")
_Pairs = Mapping[tuple[int, ...], Record]  # by the hashes of their texts

BATCH, TEMPERATURE = 64, 0.05  # of the training and of the loss before it, if the data suffice

_OR = "mixed up, or can the encoder not read the language?"
CHANCE = {
    "pairs": "check the data: before training, other texts are as similar as the text of a pair, "
    f"which is chance level. Are rows {_OR}",
    "labelled texts": "check the labels: before training, texts of the same label are no more "
    f"similar than others, which is chance level. This is usual for sentiment. Or are labels {_OR}",
    "scored pairs": "check the scores: before training, pairs with higher scores are no more "
    f"similar, which is chance level. Do high scores mean a large distance, are rows {_OR}",
}
"""Message on data at chance level, by the kind of rows."""

LABELS = "if the first texts are labels, put a line label<TAB>text above them"
"""Message on pairs with few different first texts."""

_WANTED, _MOST = 100, 1_000  # fewest (within 15%) and most records to hold out
_LOOKED_AT = 320  # pairs whose loss is measured before training: five batches
_TIMED = 16  # records whose forward and backward pass is timed
_MEASURING = 0.05  # share of --minutes after which no further batch or pass is measured
_RECORDS = 1_000_000  # records that are read to choose settings
_PER_LABEL = 10  # pairs for each different first text from which first texts may be labels


@dataclass(frozen=True)
class PairFacts:
    """The facts on pairs that were measured before training."""

    linked: float = 0.0  # share of the pairs that have a text in common with another pair
    loss: float | None = None  # InfoNCE; None if it was not measured
    chance: bool = False  # whether similarities do not show which texts belong together
    labels: int = 0  # number of different first texts, if these may be labels; otherwise 0


@dataclass(frozen=True)
class Split:
    """The held-out records. If they are too few for a score, ``lacks`` says why."""

    texts: Sequence[Sequence[str]]
    share: float  # share of the records to hold out; 0 if too few can be ranked for a score
    apart: bool  # whether held-out pairs share no text with the others
    lacks: str  # why too few can be ranked


@dataclass(frozen=True)
class Facts:
    """The facts that the choices depend on."""

    records: int  # number of different records; a pair has one for each of its negatives
    columns: int  # 1 for single texts, 2 for pairs, 3 with hard negatives
    trained: int  # number of records that are not held out
    start: PairFacts
    split: Split
    seconds: float  # time of a forward and backward pass for a record; 0 without --minutes
    spent: float  # seconds that reading and measuring took
    tokens: np.ndarray  # numbers of tokens of the texts that were timed, after they were cut
    kind: str  # texts, pairs, scored pairs or labelled texts
    more: bool = False  # whether there are more records than were read


def facts_of(encoder: SentenceEncoder, settings: TrainSettings) -> Facts:
    """Read the records, and embed some of them."""
    began = time.monotonic()
    until = began + 60 * _MEASURING * (settings.minutes or math.inf)
    seen: dict[tuple[int, ...], Record] = {}
    (name,) = settings.datasets
    with bar(None, "read", "records") as done:
        for record in islice(records := iter(reading := records_of(settings, name)), _RECORDS):
            seen.setdefault(tuple(hash64(near_identical(text)) for text in record.texts), record)
            done(1)
    found, pairs = list(seen.values()), {own[:2]: record for own, record in seen.items()}
    columns, kind = min(3, max(map(len, seen))), reading.kind
    start = PairFacts()
    if columns > 1:
        start = _before(settings, encoder, pairs, until, scored=kind == "scored pairs")
        firsts = len({first for first, *_ in pairs})
        if reading.names == ["1", "2"] and _PER_LABEL * firsts <= len(pairs):
            start = replace(start, labels=firsts)
    split = _split(settings, found, len(pairs), start, kind)
    seconds, tokens = 0.0, np.ones(1)
    if settings.minutes:
        few = [record.texts for record in _some(found)]
        limit = limit_of(settings, encoder)
        texts = [text for column in _columns(few) for text in column]
        tokens = np.minimum(encoder.token_counts(texts), limit)
        seconds = _seconds(few, encoder, limit, until)
    return Facts(
        len(found),
        columns,
        len(found) - len(split.texts),
        start,
        split,
        seconds,
        spent=time.monotonic() - began,
        tokens=tokens,
        kind=kind,
        more=next(records, None) is not None,
    )


def _before(
    settings: TrainSettings,
    encoder: SentenceEncoder,
    pairs: _Pairs,
    until: float,
    *,
    scored: bool,
) -> PairFacts:
    """Return the facts on pairs before training."""
    own = [(*key, group_mark(r.group, r.texts[0])) for key, r in pairs.items()]
    groups = joined_groups(np.array(own, np.uint64))
    _, sizes = np.unique(groups, return_counts=True)
    linked = float(sizes[sizes > 1].sum() / len(pairs))
    alone = not scored and len(sizes) == 1 < len(pairs)
    if alone and max(len(record.texts) for record in pairs.values()) == 2:
        raise InputError(ONE_GROUP.format(len(pairs)))
    rows = np.random.default_rng(0).permutation(len(pairs))[:_LOOKED_AT]
    first, prompts = list(pairs.values()), _prompts(settings, encoder)
    if scored:  # the query prompt is put before both texts
        prompts = [prompts[0]] * 2
    records = [first[row] for row in rows]
    looked_at = [[p + t for p, t in zip(prompts, r.texts, strict=False)] for r in records]
    if scored:
        scores = np.array([record.scores[0] for record in records])
        return PairFacts(linked, chance=_unordered(looked_at, scores, encoder))
    return PairFacts(linked, *_loss(looked_at, groups[rows], encoder, until))


def _unordered(
    pairs: Sequence[Sequence[str]], scores: np.ndarray, encoder: SentenceEncoder
) -> bool:
    """Return whether Spearman's correlation of cosines and scores is within two errors of 0."""
    a, b = (torch.from_numpy(encoder.encode([pair[side] for pair in pairs])) for side in (0, 1))
    cosines = torch.nn.functional.cosine_similarity(a, b).numpy()
    return spearman(cosines, scores) <= 2 / math.sqrt(len(pairs))


def _split(
    settings: TrainSettings, found: Sequence[Record], pairs: int, start: PairFacts, kind: str
) -> Split:
    """Return the held-out records; labelled texts are apart."""
    chosen = not {"dev", "holdout"} & settings.model_fields_set
    share = _share(pairs, start) if chosen else settings.held_out
    views: Views = "dropout" if len(found[0].texts) == 1 else "pairs"
    (name,) = settings.datasets
    together = held_out_of(settings.model_copy(update={"holdout": share}), name)
    formed = Former(views, share, settings.seed, together.texts).form(found)
    held = [record.texts for record in formed if record.held]
    able = len(usable((record.texts for record in found), views))
    enough = len(usable(held, views)) >= LEAST
    lacks = "there are too few records"
    if 2 * able < pairs:
        lacks = f"only {able:,} of {pairs:,} records are {USABLE[views == 'dropout']}, too few"
    elif share * able >= FEWEST:
        lacks = "the pairs have too few different first texts"
    if chosen:
        enough &= share * able >= FEWEST
        held = held if enough else []
        if start.chance and not enough:
            labels = f"{LABELS}; if not, " * bool(start.labels)
            raise InputError(
                f"{labels}{CHANCE[kind]} A training may do harm, and {lacks} to hold some out and "
                "find out. To train anyway, use `--holdout 0`"
            )
    apart = views == "dropout" or together.texts is not None or kind == "labelled texts"
    return Split(held, share if enough else 0.0, apart, lacks)


def _some(items: list[T]) -> list[T]:
    """Return a few of the items, spread over all."""
    return items[:: max(1, len(items) // _TIMED)][:_TIMED]


def limit_of(settings: TrainSettings, encoder: SentenceEncoder) -> int:
    """Return the number of tokens after which texts are cut, before --minutes shortens them."""
    given = "max_length" in settings.model_fields_set
    return min(settings.max_length if given else encoder.max_length, encoder.max_length)


def _columns(records: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the texts of each pass: anchors, positives (or the same texts) and negatives."""
    negatives = [text for record in records for text in record[2:]]
    views = ([record[:2][side] for record in records] for side in (0, -1))
    return [*views, *([negatives] if negatives else [])]


def _seconds(
    few: Sequence[Sequence[str]], encoder: SentenceEncoder, limit: int, until: float
) -> float:
    """Return the seconds of a forward and backward pass for a record, the median of some passes."""
    took: list[float] = []
    while len(took) < 2 or (len(took) < 7 and time.monotonic() < until):
        start = time.perf_counter()
        for column in _columns(few):
            rows, _ = encoder.tokenize(column, limit)
            encoder.of_tokens(rows).square().sum().backward()
        encoder.zero_grad()
        took.append(time.perf_counter() - start)
    return float(np.median(took)) / len(few)


def _share(records: int, start: PairFacts) -> float:
    """Return the share to hold out: 100 records or 2%, but at most 15% and 1,000 of those read.

    At chance level, up to 40% are held out: without a score, such a training may do harm.
    """
    return min(0.4 if start.chance else 0.15, max(_WANTED / records, 0.02), _MOST / records)


def _prompts(settings: TrainSettings, encoder: SentenceEncoder) -> list[str]:
    """Return the prompts of anchors and positives: those given, or the encoder's own."""
    own = zip(("query_prompt", "passage_prompt"), own_prompts(encoder), strict=True)
    given = settings.model_fields_set
    return [getattr(settings, name) if name in given else prompt for name, prompt in own]


def _loss(
    pairs: Sequence[Sequence[str]], groups: np.ndarray, encoder: SentenceEncoder, until: float
) -> tuple[float | None, bool]:
    """Return the mean InfoNCE, scaled to batches of 64, and whether the pairs are at chance level.

    They are if, within two standard errors, half of the negatives are as similar as the positive.
    """
    objective = registry.build("infonce", {"temperature": TEMPERATURE})
    found: list[float] = []
    passed: list[float] = []  # share of the negatives that are less similar, for each anchor
    with bar(len(pairs), "measure", "pairs") as done, showing(show=False):
        for start in range(0, max(1, len(pairs) - BATCH + 1), BATCH):
            part = slice(start, start + BATCH)
            own = torch.from_numpy(groups[part])
            done(len(own))
            if len(own.unique()) > 1 and (not found or time.monotonic() < until):
                views = [
                    torch.from_numpy(encoder.encode([pair[side] for pair in pairs[part]]))
                    for side in (0, 1)
                ]
                loss = float(objective(*views, groups=own))
                found.append(loss * math.log(BATCH) / math.log(len(own)))
                a, b = map(torch.nn.functional.normalize, views)
                scores = a @ b.T
                less = (1 + (scores.diag()[:, None] - scores).sign()) / 2
                others = own[:, None] != own
                passed += ((less * others).sum(1) / others.sum(1))[others.any(1)].tolist()
    if not found:
        return None, False
    errors = 2 * np.std(passed) / math.sqrt(len(passed))
    return float(np.mean(found)), bool(np.mean(passed) - errors <= 0.5)
