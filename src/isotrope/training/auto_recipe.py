"""``--recipe auto``: looks at the data and the encoder to choose settings that a user left out.

The choices replace the defaults before a run begins, and are written to config.yaml. The same
command with the choices as flags repeats the run.

In our trials (docs/LOG.md), the mean of the original and the trained weights scored about as well
as the trained weights and forgot less. Held-out records decide only which model is saved.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder
from isotrope.core.spelling import named
from isotrope.data.schemas import Record
from isotrope.data.text.repeats import group_mark, hash64, joined_groups, near_identical
from isotrope.data.text.views import FEWEST, ONE_GROUP, Former, Views
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.dev_score import LEAST, MOST, USABLE, dev_metric_of_file, usable
from isotrope.evaluation.retrieval import own_prompts
from isotrope.paradigm import registry
from isotrope.training.early_checks import OBJECTIVE, check_folder, recipe_applies
from isotrope.training.progress import warn
from isotrope.training.refit import without_mean
from isotrope.training.settings import LIMITED, TrainSettings
from isotrope.training.text_data import MOST_HELD_OUT, held_out_of, records_of
from isotrope.training.text_encoder import encoder_of

T = TypeVar("T")
_Pairs = Mapping[tuple[int, ...], Record]  # by the hashes of their texts

_BATCH = 64
_WANTED, _MOST = 100, 1_000  # fewest (within 15%) and most records to hold out
_OF_OBJECTIVES = ("objective", "objective_settings", "query_prompt", "passage_prompt")
_LOOKED_AT = 320  # pairs whose loss is measured before training: five batches
_TIMED = 16  # records whose forward and backward pass is timed
_MEASURING = 0.05  # share of --minutes after which no further batch or pass is measured
_SHORTEST = 64  # tokens to which --minutes may shorten texts, so that an epoch is possible
_RECORDS = 1_000_000  # records that are read to choose settings
_TEMPERATURE = 0.05
_ROWS = 5  # fewest rows of metrics.csv to log, because a diagnosis needs several
_PLANNED = 0.9  # share of --minutes for reading, steps and scores; the rest: imports and saving
_FEW = 10  # steps; after fewer, the trained model must be better to be saved
_PER_LABEL = 10  # pairs for each different first text from which first texts may be labels
_CHANCE = (
    "check the data: before training, other texts are as similar as the text of a pair, which is "
    "chance level. Are rows or labels mixed up, or can the encoder not read the language?"
)
_LABELS = "if the first texts are labels, put a line label<TAB>text above them"
_REJECTED = {"best": "not better, because so few steps change little,"}  # by --prefer
_REJECTED |= {"original": "not better by more than two standard errors"}
_REJECTED |= {"trained": "worse by more than two standard errors"}
_KNOWN, _UNKNOWN = 0.13, 0.4  # losses before training at which the rate is _RATE / 10 and _RATE
_RATE, _PAIRS = 3e-4, 5_000  # highest learning rate; pairs trained on in all epochs (1 to 8)


@dataclass(frozen=True)
class Choice:
    """A value that ``--recipe auto`` chooses for a setting."""

    name: str
    value: Any
    why: str  # choices with the same reason are printed on one line
    short: str = ""  # epochs or steps that ``--minutes`` has no time for


@dataclass(frozen=True)
class _Start:
    """The facts on pairs that were measured before training."""

    linked: float = 0.0  # share of the pairs that have a text in common with another pair
    loss: float | None = None  # InfoNCE; None if it was not measured
    chance: bool = False  # whether positives are no more similar to anchors than other texts
    labels: int = 0  # number of different first texts, if these may be labels; otherwise 0


@dataclass(frozen=True)
class _Facts:
    """The facts that the choices depend on."""

    records: int  # number of different records; a pair has one for each of its negatives
    columns: int  # 1 for single texts, 2 for pairs, 3 with hard negatives
    trained: int  # number of records that are not held out
    start: _Start
    held_out: float  # share of the records to hold out; 0 if too few can be ranked for a score
    apart: bool  # whether held-out pairs share no text with the others
    lacks: str  # why too few can be ranked
    seconds: float  # time of a forward and backward pass for a record; 0 without --minutes
    scoring: float  # time of one dev score and its losses of held-out records
    spent: float  # seconds that reading and measuring took
    tokens: np.ndarray  # numbers of tokens of the texts that were timed, after they were cut
    scored: bool  # whether the pairs have scores


def with_recipe(
    settings: TrainSettings, *, resume: bool, lines: bool = True
) -> tuple[TrainSettings, str]:
    """Choose the settings that are not given; with ``lines`` or progress, print the choices.

    Returns: All settings, and advice for the next training, which is empty if time sufficed.
    """
    given = settings.model_fields_set
    planned = recipe_applies(settings)
    settings.check_used(warn, planned=planned)
    if not planned:
        if not {"recipe", "learning_rate", "epochs"} & given:
            warn(
                f"check learning rate ({settings.learning_rate:g}), epochs ({settings.epochs:g}), "
                f"length limit ({settings.max_length} tokens) and head ({settings.head}): these "
                "are SimCSE's values, or your own. --recipe auto chooses nothing in this run"
            )
        return settings, ""
    check_folder(Path(settings.output), settings, resume=resume)
    if RunFolder(settings.output).config.is_file():  # a resumed run keeps its settings
        return settings, ""
    encoder = encoder_of(settings)
    say = warn if lines or settings.progress else lambda line: None
    say("choosing settings: reading the data, and measuring the encoder on a part of it")
    facts = _facts(encoder, settings)
    rule = _for_scores if facts.scored else _for_texts if facts.columns == 1 else _for_pairs
    given = given - {"objective_settings"}  # the choice includes what is given
    made = [
        choice
        for choice in rule(facts, encoder, settings)
        if choice.name not in given
        or (choice.name in LIMITED and choice.value < getattr(settings, choice.name))
    ]
    chosen = settings.model_copy(update={choice.name: choice.value for choice in made})
    for line in _explained(facts, made):
        say(line)
    short = next((c.short for c in made if c.name in LIMITED), "")
    return chosen, f"train longer: {short}" if short else ""


def _explained(facts: _Facts, made: Sequence[Choice]) -> Iterator[str]:
    """Yield a line on the data, then a line for each reason with the flags that it explains."""
    kinds = {1: "single texts", 2: "pairs", 3: "pairs with hard negatives"}
    kind = "scored pairs" if facts.scored else kinds[facts.columns]
    start = facts.start
    linked = f", {start.linked:.0%} of which share a text with others" if start.linked else ""
    chose = "--recipe auto chose these settings (SimCSE's: --recipe papers)"
    yield f"{chose} for {facts.records:,} {kind}{linked}:"
    if start.labels:
        yield f"  {_LABELS}: the pairs have only {start.labels:,} different first texts"
    told = [choice for choice in made if choice.value != ""]
    for why, choices in groupby(told, lambda choice: choice.why):
        yield f"  {' '.join(flag for choice in choices for flag in _flags(choice))}: {why}"


def _flags(choice: Choice) -> Iterator[str]:
    """Yield the flags of a choice."""
    if choice.name != "objective_settings":
        yield named(choice.name, choice.value).strip("`")
        return
    for key, value in choice.value.items():
        yield named(f"objective.{key}", value).strip("`")


def _facts(encoder: SentenceEncoder, settings: TrainSettings) -> _Facts:
    """Read the records, and embed some of them."""
    began = time.monotonic()
    until = began + 60 * _MEASURING * (settings.minutes or math.inf)
    seen: dict[tuple[int, ...], Record] = {}
    (name,) = settings.datasets
    for record in islice(reading := records_of(settings, name), _RECORDS):
        seen.setdefault(tuple(hash64(near_identical(text)) for text in record.texts), record)
    found, pairs = list(seen.values()), {own[:2]: record for own, record in seen.items()}
    columns, scored = min(3, max(map(len, seen))), reading.kind == "scored pairs"
    start = _Start()
    if columns > 1:
        start = _before(settings, encoder, pairs, until, compared=not scored)
        firsts = len({first for first, *_ in pairs})
        if reading.names == ["1", "2"] and _PER_LABEL * firsts <= len(pairs):
            start = replace(start, labels=firsts)
    known = reading.kind == "labelled texts"
    held, *split = _split(settings, found, len(pairs), start, known=known)
    seconds, scoring, tokens = 0.0, 0.0, np.ones(1)
    if settings.minutes:
        views: Views = "dropout" if columns == 1 else "pairs"
        few = [record.texts for record in _some(found)]
        limit = _limit(settings, encoder)
        texts = [text for column in _columns(few) for text in column]
        tokens = np.minimum(encoder.token_counts(texts), limit)
        seconds = _seconds(few, encoder, limit, until)
        ranked = _ranked(settings, held, views)
        sizes = np.minimum(encoder.token_counts(_some(ranked) or [""]), encoder.max_length)
        whole = len(ranked) * sizes.mean() * len(few) / tokens.sum()  # as many tokens: records
        losses = 2 * min(len(held), MOST_HELD_OUT)  # of held-out and trained records
        scoring = float(seconds / 3 * (whole + losses))  # a step takes three forward passes
    own: list[Any] = [len(found), columns, len(found) - len(held), start, *split, seconds, scoring]
    own += [time.monotonic() - began, tokens, scored]
    return _Facts(*own)


def _before(
    settings: TrainSettings,
    encoder: SentenceEncoder,
    pairs: _Pairs,
    until: float,
    *,
    compared: bool,
) -> _Start:
    """Return the facts on pairs before training."""
    own = [(*key, group_mark(r.group, r.texts[0])) for key, r in pairs.items()]
    groups = joined_groups(np.array(own, np.uint64))
    _, sizes = np.unique(groups, return_counts=True)
    linked = float(sizes[sizes > 1].sum() / len(pairs))
    if not compared:
        return _Start(linked)
    if len(sizes) == 1 < len(pairs) and max(map(len, (r.texts for r in pairs.values()))) == 2:
        raise InputError(ONE_GROUP.format(len(pairs)))
    rows = np.random.default_rng(0).permutation(len(pairs))[:_LOOKED_AT]
    first, prompts = list(pairs.values()), _prompts(settings, encoder)
    records = (first[row].texts for row in rows)
    looked_at = [[p + t for p, t in zip(prompts, r, strict=False)] for r in records]
    return _Start(linked, *_loss(looked_at, groups[rows], encoder, until))


def _split(
    settings: TrainSettings, found: Sequence[Record], pairs: int, start: _Start, *, known: bool
) -> tuple[Any, ...]:
    """Return the held-out records, and three facts; labelled texts (``known``) are apart."""
    chosen = not {"dev", "holdout"} & settings.model_fields_set
    share = _share(pairs, start) if chosen else settings.held_out
    views: Views = "dropout" if len(found[0].texts) == 1 else "pairs"
    (name,) = settings.datasets
    together = held_out_of(settings.model_copy(update={"holdout": share}), name)
    formed = Former(views, share, settings.seed, together).form(found)
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
            raise InputError(
                f"{f'{_LABELS}; if not, ' * bool(start.labels)}{_CHANCE} A training may do harm, "
                f"and {lacks} to hold some out and find out. To train anyway, use `--holdout 0`"
            )
    apart = views == "dropout" or together is not None or known
    return held, share if enough else 0.0, apart, lacks


def _some(items: list[T]) -> list[T]:
    """Return a few of the items, spread over all."""
    return items[:: max(1, len(items) // _TIMED)][:_TIMED]


def _ranked(settings: TrainSettings, held: Sequence[Sequence[str]], views: str) -> list[str]:
    """Return the texts that are embedded for a dev score."""
    if settings.dev not in (None, "auto"):
        return [*dev_metric_of_file(Path(settings.dev), settings.dev_metric).texts]
    given = "dev" in settings.model_fields_set
    return [] if given and settings.dev is None else [*chain(*usable(held, views))][: 2 * MOST]


def _limit(settings: TrainSettings, encoder: SentenceEncoder) -> int:
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


def _share(records: int, start: _Start) -> float:
    """Return the share to hold out: 100 records or 2%, but at most 15% and 1,000 records.

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
    objective = registry.build("infonce", {"temperature": _TEMPERATURE})
    found: list[float] = []
    passed: list[float] = []  # share of the negatives that are less similar, for each anchor
    for start in range(0, max(1, len(pairs) - _BATCH + 1), _BATCH):
        part = slice(start, start + _BATCH)
        own = torch.from_numpy(groups[part])
        if len(own.unique()) > 1 and (not found or time.monotonic() < until):
            views = [
                torch.from_numpy(encoder.encode([pair[side] for pair in pairs[part]]))
                for side in (0, 1)
            ]
            loss = float(objective(*views, groups=own))
            found.append(loss * math.log(_BATCH) / math.log(len(own)))
            a, b = map(torch.nn.functional.normalize, views)
            scores = a @ b.T
            less = (1 + (scores.diag()[:, None] - scores).sign()) / 2
            others = own[:, None] != own
            passed += ((less * others).sum(1) / others.sum(1))[others.any(1)].tolist()
    if not found:
        return None, False
    errors = 2 * np.std(passed) / math.sqrt(len(passed))
    return float(np.mean(found)), bool(np.mean(passed) - errors <= 0.5)


def _for_pairs(facts: _Facts, encoder: SentenceEncoder, settings: TrainSettings) -> list[Choice]:
    """Return the choices for pairs."""
    before = facts.start.loss
    loss = _UNKNOWN if before is None else before
    left = float(np.interp(loss, (_KNOWN, _UNKNOWN), (0.1, 1)))
    query, passage = own_prompts(encoder)
    own = settings.objective_settings
    both = "this loss compares each text of a pair with all other texts of the batch"
    state = "there is much to learn" if left == 1 else "the encoder already ranks many pairs well"
    why = "no loss was measured before training, so these are the values for much to learn"
    if before is not None:
        why = f"{state} (InfoNCE before training: {before:.2f}, {_UNKNOWN} or more is much)"
    if facts.start.chance:
        why = f"{_CHANCE} (InfoNCE before training: {before:.2f})"
    wanted = _wanted(float(np.clip(round(left * _PAIRS / facts.records), 1, 8)), facts, settings)
    longest = _limit(settings, encoder)
    length = _length(longest, min(1.0, wanted), facts, settings)
    steps, whole, until = _until(wanted, facts, settings, length, why)
    often = [Choice("log_every", max(1, steps // _ROWS), "the training has few steps")]
    return [
        Choice("objective", OBJECTIVE, both),
        Choice("objective_settings", {"temperature": _TEMPERATURE, **own}, both),
        Choice("head", "none", "a head helps with single texts only"),
        _cut(length, "the encoder's own limit", longest, settings),
        Choice("query_prompt", query, "the prompt that the encoder was trained with"),
        Choice("passage_prompt", passage, "the prompt that the encoder was trained with"),
        *_watched(facts, settings, few=steps < _FEW),
        *(_twice(facts, settings) if whole else []),
        *(often if steps < 10 * _ROWS else []),
        Choice(
            "batch_size",
            _batch(facts, settings),
            "in a batch, each pair is compared with all others",
        ),
        Choice("learning_rate", float(f"{_RATE * left:.1g}"), until.why),
        until,
        Choice("warmup", 0.1, until.why),
        Choice("between", 0.7, "the saved weights are a mean of original and trained weights"),
    ]


def _for_scores(facts: _Facts, encoder: SentenceEncoder, settings: TrainSettings) -> list[Choice]:
    """Return the choices for scored pairs; only loss and prompts differ from pairs."""
    query, why = own_prompts(encoder)[0], "the query prompt is put before both texts of a pair"
    return [
        Choice("loss", "CoSENTLoss", "this loss learns the order of the scores"),
        *(Choice(name, query, why) for name in ("query_prompt", "passage_prompt")),
        *(c for c in _for_pairs(facts, encoder, settings) if c.name not in _OF_OBJECTIVES),
    ]


def _length(longest: int, epochs: float, facts: _Facts, settings: TrainSettings) -> int:
    """Return the largest limit of tokens, halved if needed, with which so many epochs fit."""
    length = longest
    if "max_length" in settings.model_fields_set:
        return length
    while length >= 2 * _SHORTEST and _within(epochs, facts, settings, length) < epochs:
        length //= 2
    return length


def _cut(length: int, why: str, longest: int, settings: TrainSettings) -> Choice:
    """Return the choice of the limit of tokens, with the reason for a limit below ``longest``."""
    shorter = f"--minutes {settings.minutes or 0:g} has no time for an epoch with longer texts"
    return Choice("max_length", length, why if length == longest else shorter)


def _within(epochs: float, facts: _Facts, settings: TrainSettings, length: int) -> float:
    """Return the epochs that fit into ``--minutes``; a second training needs what is left."""
    if settings.minutes is None:
        return epochs
    planned = 60 * settings.minutes * _PLANNED
    shorter = np.minimum(facts.tokens, length).sum() / facts.tokens.sum()
    left = max(planned - facts.spent - 2 * facts.scoring, planned / 10)
    step = _batch(facts, settings) * shorter * facts.seconds
    if "eval_every" in settings.model_fields_set and settings.eval_every:
        step += facts.scoring / settings.eval_every
    return min(epochs, float(f"{left / max(step * _steps_per_epoch(facts, settings), 1e-9):.3g}"))


def _wanted(epochs: float, facts: _Facts, settings: TrainSettings) -> float:
    """Return the epochs to train if time suffices: those given (``--max-steps``), or ``epochs``."""
    if settings.max_steps is not None:
        return settings.max_steps / _steps_per_epoch(facts, settings)
    return settings.epochs if "epochs" in settings.model_fields_set else epochs


def _until(
    wanted: float, facts: _Facts, settings: TrainSettings, length: int, why: str
) -> tuple[int, bool, Choice]:
    """Return the steps that fit into ``--minutes``, whether all do, and the choice that says so."""
    epochs = _within(wanted, facts, settings, length)
    steps, whole = max(1, int(epochs * _steps_per_epoch(facts, settings))), epochs >= wanted
    most = settings.max_steps
    fits = f"{epochs:g} of {wanted:g} epochs" if most is None else f"{steps:,} of {most:,} steps"
    second = "" if facts.columns == 1 else ", and for no second training"
    short = "" if whole else f"--minutes {settings.minutes:g} has time for {fits}{second}"
    why = f"{why}; {short}" if short else why
    if most is None:
        return steps, whole, Choice("epochs", epochs, why, short)
    steps = most if whole else steps
    return steps, whole, Choice("max_steps", steps, why, short)


def _for_texts(facts: _Facts, encoder: SentenceEncoder, settings: TrainSettings) -> list[Choice]:
    """Return the choices for single texts: SimCSE's settings, checked on held-out text."""
    wanted = _wanted(1.0, facts, settings)
    longest = min(_limit(settings, encoder), 128)
    length = _length(longest, min(1.0, wanted), facts, settings)
    return [
        _cut(length, "within the encoder's own limit", longest, settings),
        *_watched(facts, settings),
        Choice(
            "batch_size", _batch(facts, settings), "the other texts of a batch are the negatives"
        ),
        _until(wanted, facts, settings, length, "single texts need one epoch")[-1],
        Choice("between", 0.5, "the saved weights lie midway between original and trained weights"),
    ]


def _watched(facts: _Facts, settings: TrainSettings, *, few: bool = False) -> list[Choice]:
    """Return the choices that hold out data to compare the model before and after training."""
    prefer = "original" if facts.start.chance else "best" if few else "trained"
    why = f"the original model is saved if the trained one is {_REJECTED[prefer]}"
    if facts.columns > 1 and facts.held_out and settings.dev in (None, "auto"):
        share = "share no text with the others" if facts.apart else "may share a text with others"
        why += f" on held-out pairs, which {share}"
    given = "dev" in settings.model_fields_set
    if given and settings.dev is None:
        return []
    if not (given or facts.held_out):
        hint = f"{facts.lacks} to hold some out for a score; add `--dev FILE`"
        return [Choice("eval_every", 0, hint) if settings.holdout else Choice("holdout", 0.0, hint)]
    ends = [Choice("eval_every", 0, why)]
    if facts.columns > 1:  # few held-out pairs can reject a training, but not choose its best step
        ends.append(Choice("prefer", prefer, why))
    if given:
        return ends
    return [Choice("dev", "auto", why), Choice("holdout", round(facts.held_out, 4), why), *ends]


def _twice(facts: _Facts, settings: TrainSettings) -> list[Choice]:
    """Return the choice of a second training on all pairs, if some are held out."""
    several = settings.devices > 1 or without_mean(settings)
    if several or not facts.held_out or "dev" in settings.model_fields_set:
        return []
    why = "a second training, about as long, has the held-out pairs too; both models are averaged"
    return [Choice("refit", True, why)]


def _steps_per_epoch(facts: _Facts, settings: TrainSettings) -> float:
    return facts.trained / _batch(facts, settings)


def _batch(facts: _Facts, settings: TrainSettings) -> int:
    """Return the batch size: 64, or less for a small data set."""
    if "batch_size" in settings.model_fields_set:
        return settings.batch_size
    return max(2, min(_BATCH, int(0.8 * facts.trained)))
