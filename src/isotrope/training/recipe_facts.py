"""Measures the facts about data and encoder from which ``--recipe auto`` chooses settings."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np
import torch

from isotrope.core.errors import InputError
from isotrope.core.progress import bar, showing
from isotrope.data.records import Record
from isotrope.data.sources import unread_labels
from isotrope.data.text.repeats import group_mark, hash64, joined_groups, near_identical
from isotrope.data.text.views import FEWEST, ONE_GROUP, Former, Views
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.dev_score import LEAST, USABLE, usable
from isotrope.evaluation.retrieval import own_prompts
from isotrope.evaluation.sts import spearman
from isotrope.paradigm import registry
from isotrope.training.settings import TrainSettings
from isotrope.training.text_data import held_out_of, records_of

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
ANSWERS = (
    "the pairs have only {:,} different second texts. If your search will find other texts than "
    "these, use --learning-rate 1e-4 --epochs 3, which learns less by heart"
)
"""Message on pairs with few different second texts (docs/LOG.md)."""
_WANTED, _MOST = 100, 1_000  # fewest (within 15%) and most records to hold out
_EMBEDDED = 320  # pairs that are embedded before training, for their loss: five batches
_TIMED = 16  # records whose forward and backward pass is timed
_MEASURING = 0.05  # share of --minutes after which no further batch or pass is measured
_RECORDS = 1_000_000  # records that are read to choose settings
_PER_ANSWER = 2  # pairs for each different second text from which these are learnt by heart


@dataclass(frozen=True)
class PairFacts:
    """The facts that were measured before training; of single texts, only ``loss``."""

    linked: float = 0.0  # share of the pairs that have a text in common with another pair
    loss: float | None = None  # InfoNCE, scaled to batches of BATCH; None if it was not measured.
    # The positive of a single text is the same text with another dropout mask
    chance: bool = False  # whether similarities do not show which texts belong together
    answers: int = 0  # number of different second texts, if each has several pairs; otherwise 0


@dataclass(frozen=True)
class Split:
    """The records to hold out. If they are too few for a score, ``lacks`` says why."""

    held: int  # number of the records to hold out
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
    seconds: float  # time of a forward and backward pass for a record
    spent: float  # seconds that reading and measuring took
    tokens: np.ndarray  # numbers of tokens of the texts that were timed, after they were cut
    kind: str  # texts, pairs, scored pairs or labelled texts
    repeated: int  # number of records that are equal to an earlier one
    more: bool = False  # whether there are more records than were read


@dataclass(frozen=True)
class _Untrained:
    """The encoder to measure, and the time after which no more batches or passes are measured."""

    encoder: SentenceEncoder
    settings: TrainSettings
    until: float


def facts_of(encoder: SentenceEncoder, settings: TrainSettings) -> Facts:
    """Read the records, and embed some of them."""
    began = time.monotonic()
    until = began + 60 * _MEASURING * (settings.minutes or math.inf)
    untrained = _Untrained(encoder, settings, until)
    (name,) = settings.datasets
    reading = records_of(settings, name)
    unread = iter(reading)
    by_texts: dict[tuple[str, ...], Record] = {}
    with bar(None, "read", "records") as advance:
        for record in islice(unread, _RECORDS):
            by_texts.setdefault(record.texts, record)
            advance(1)
    records, repeated = list(by_texts.values()), reading.records - len(by_texts)
    pairs = {tuple(hash64(near_identical(text)) for text in r.texts[:2]): r for r in records}
    columns = min(3, max(len(record.texts) for record in records))
    if columns == 1:
        start = PairFacts(loss=_loss_of_texts([record.texts[0] for record in records], untrained))
    else:
        start = _pair_facts(pairs, reading.kind, untrained)
        answers = len({second for _, second, *_ in pairs}) * (not unread_labels(reading))
        if reading.kind == "pairs" and _PER_ANSWER * answers <= len(pairs):
            start = replace(start, answers=answers)
    split = _split(settings, records, len(pairs), start, reading.kind)
    timed = [record.texts for record in records[:: max(1, len(records) // _TIMED)]][:_TIMED]
    limit = limit_of(settings, encoder)
    return Facts(
        records=len(records),
        columns=columns,
        trained=len(records) - split.held,
        start=start,
        split=split,
        seconds=_seconds(timed, limit, untrained),
        spent=time.monotonic() - began,
        tokens=np.minimum(encoder.token_counts([*chain(*_passes(timed))]), limit),
        kind=reading.kind,
        repeated=repeated,
        more=next(unread, None) is not None,
    )


def limit_of(settings: TrainSettings, encoder: SentenceEncoder) -> int:
    """Return the number of tokens after which texts are cut, before --minutes shortens them."""
    if "max_length" in settings.model_fields_set:
        return min(settings.max_length, encoder.max_length)
    return encoder.max_length


# pairs: what they share, and whether they are at chance level


def _pair_facts(
    pairs: Mapping[tuple[int, ...], Record], kind: str, untrained: _Untrained
) -> PairFacts:
    """Return the facts on pairs, whose keys are the hashes of both texts."""
    marks = [(*key, group_mark(r.group, r.texts[0])) for key, r in pairs.items()]
    groups = joined_groups(np.array(marks, np.uint64))
    _, sizes = np.unique(groups, return_counts=True)
    linked = float(sizes[sizes > 1].sum() / len(pairs))
    is_scored, is_one_group = kind == "scored pairs", len(sizes) == 1 < len(pairs)
    has_negatives = any(len(record.texts) > 2 for record in pairs.values())
    if is_one_group and not is_scored and not has_negatives:
        raise InputError(ONE_GROUP.format(len(pairs)))
    rows = np.random.default_rng(0).permutation(len(pairs))[:_EMBEDDED]
    in_order = list(pairs.values())
    records = [in_order[row] for row in rows]
    query, passage = own_prompts(untrained.encoder)
    prompts = {"query_prompt", "passage_prompt"}
    given = untrained.settings.model_dump(include=prompts, exclude_unset=True)
    query, passage = given.get("query_prompt", query), given.get("passage_prompt", passage)
    if is_scored:
        passage = query  # the query prompt is put before both texts
    anchors = [query + record.texts[0] for record in records]
    positives = [passage + record.texts[1] for record in records]
    if is_scored:
        scores = np.array([record.scores[0] for record in records])
        unordered = _are_unordered(anchors, positives, scores, untrained.encoder)
        return PairFacts(linked, chance=unordered)
    return replace(_contrast(anchors, positives, groups[rows], untrained), linked=linked)


def _loss_of_texts(texts: Sequence[str], untrained: _Untrained) -> float | None:
    """Return InfoNCE of texts with two dropout masks; None for less than a batch or no dropout."""
    objective = registry.build("infonce", {"temperature": TEMPERATURE})
    some = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[:_EMBEDDED]]
    limit = min(128, limit_of(untrained.settings, untrained.encoder))
    rows, _ = untrained.encoder.tokenize(some, limit)
    losses: list[float] = []
    with bar(len(rows), "measure", "texts") as advance, showing(show=False):
        for first in range(0, len(rows) - BATCH + 1, BATCH):
            if losses and time.monotonic() >= untrained.until:
                break
            part = rows[first : first + BATCH]
            a, b = untrained.encoder.with_dropout(part, untrained.settings.seed, BATCH)
            if torch.equal(a, b):
                return None
            losses.append(float(objective(a, b)))
            advance(BATCH)
    return float(np.mean(losses)) if losses else None


def _are_unordered(
    anchors: Sequence[str], positives: Sequence[str], scores: np.ndarray, encoder: SentenceEncoder
) -> bool:
    """Return whether Spearman's correlation of cosines and scores is within two errors of 0."""
    a, b = (torch.from_numpy(encoder.encode(texts)) for texts in (anchors, positives))
    cosines = torch.nn.functional.cosine_similarity(a, b).numpy()
    return spearman(cosines, scores) <= 2 / math.sqrt(len(scores))


def _contrast(
    anchors: Sequence[str], positives: Sequence[str], groups: np.ndarray, untrained: _Untrained
) -> PairFacts:
    """Return the mean InfoNCE of batches, and whether the pairs are at chance level."""
    objective = registry.build("infonce", {"temperature": TEMPERATURE})
    losses: list[float] = []
    passed: list[float] = []  # share of the negatives that are less similar, for each anchor
    with bar(len(anchors), "measure", "pairs") as advance, showing(show=False):
        for start in range(0, max(1, len(anchors) - BATCH + 1), BATCH):
            part = slice(start, start + BATCH)
            own = torch.from_numpy(groups[part])
            advance(len(own))
            if len(own.unique()) == 1 or (losses and time.monotonic() >= untrained.until):
                continue
            texts = (anchors[part], positives[part])
            a, b = (torch.from_numpy(untrained.encoder.encode(side)) for side in texts)
            loss = float(objective(a, b, groups=own))
            losses.append(loss * math.log(BATCH) / math.log(len(own)))
            a, b = map(torch.nn.functional.normalize, (a, b))
            similarities = a @ b.T
            less = (1 + (similarities.diag()[:, None] - similarities).sign()) / 2  # equal: half
            negatives = own[:, None] != own
            passed += ((less * negatives).sum(1) / negatives.sum(1))[negatives.any(1)].tolist()
    if not losses:
        return PairFacts()
    # at chance level, half of the negatives are as similar as the positive, within two errors
    errors = 2 * np.std(passed) / math.sqrt(len(passed))
    return PairFacts(loss=float(np.mean(losses)), chance=bool(np.mean(passed) - errors <= 0.5))


# the records to hold out


def _split(
    settings: TrainSettings, records: Sequence[Record], pairs: int, start: PairFacts, kind: str
) -> Split:
    """Return which of the records to hold out; ``pairs`` of them differ."""
    is_free = not {"dev", "holdout"} & settings.model_fields_set  # whether no setting decides
    share = _share(pairs, start) if is_free else settings.held_out
    views: Views = "dropout" if len(records[0].texts) == 1 else "pairs"
    (name,) = settings.datasets
    together = held_out_of(settings.model_copy(update={"holdout": share}), name)
    formed = Former(views, share, settings.seed, together.texts).form(records)
    held = [record.texts for record in formed if record.held]
    able = len(usable((record.texts for record in records), views))
    enough = len(usable(held, views)) >= LEAST and (share * able >= FEWEST or not is_free)
    lacks = _lack(able, pairs, share * able, views)
    if is_free and start.chance and not enough:
        raise InputError(
            f"{CHANCE[kind]} A training may do harm, and {lacks} to hold some out and "
            "find out. To train anyway, use `--holdout 0`"
        )
    # labelled texts are held out one by one, before they form pairs
    apart = views == "dropout" or together.texts is not None or kind == "labelled texts"
    count = len(held) if enough or not is_free else 0
    return Split(count, share if enough else 0.0, apart, lacks)


def _lack(able: int, pairs: int, wanted: float, views: Views) -> str:
    """Return why too few records can be scored, if ``able`` of ``pairs`` fit a search task."""
    if 2 * able < pairs:
        return f"too few records ({able:,} of {pairs:,}) are {USABLE[views == 'dropout']}"
    if wanted >= FEWEST:
        return "the pairs have too few different first texts"
    return "there are too few records"


def _share(records: int, start: PairFacts) -> float:
    """Return the share to hold out: 100 records or 2%, but at most 15% and 1,000 of those read."""
    # at chance level, up to 40%: without a score, such a training may do harm
    return min(0.4 if start.chance else 0.15, max(_WANTED / records, 0.02), _MOST / records)


# the time of a pass


def _passes(records: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the texts of each pass: anchors, positives (or the same texts) and negatives."""
    anchors = [record[0] for record in records]
    positives = [record[:2][-1] for record in records]
    negatives = [text for record in records for text in record[2:]]
    return [anchors, positives, negatives] if negatives else [anchors, positives]


def _seconds(records: Sequence[Sequence[str]], limit: int, untrained: _Untrained) -> float:
    """Return the seconds of a pass for a record, the median of some; the first is slow."""
    took: list[float] = []
    most = 2 if untrained.settings.minutes is None else 7
    while len(took) < 2 or (len(took) < most and time.monotonic() < untrained.until):
        start = time.perf_counter()
        for texts in _passes(records):
            rows, _ = untrained.encoder.tokenize(texts, limit)
            size = untrained.settings.micro_batch or len(rows)  # needs no more memory than a step
            for first in range(0, len(rows), size):
                untrained.encoder.of_tokens(rows[first : first + size]).square().sum().backward()
        untrained.encoder.zero_grad()
        took.append(time.perf_counter() - start)
    return float(np.median(took[1:])) / len(records)
