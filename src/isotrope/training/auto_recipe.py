"""``--recipe auto``: looks at the data and the encoder to choose settings that a user left out.

The choices replace the defaults before a run begins, and are written to config.yaml. The same
command with the choices as flags repeats the run.

In our trials (docs/LOG.md), the mean of the original and the trained weights scored about as well
as the trained weights and forgot less. Held-out records decide only which model is saved.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from isotrope.core.progress import showing
from isotrope.core.run_folder import IN_MEMORY, RunFolder
from isotrope.core.spelling import named, spell
from isotrope.data.sources import unread_labels
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.retrieval import own_prompts
from isotrope.training import early_checks, recipe_facts
from isotrope.training.progress import warn
from isotrope.training.recipe_facts import BATCH, Facts
from isotrope.training.run import without_mean
from isotrope.training.settings import LIMITED, OF_SCORES, TrainSettings
from isotrope.training.text_encoder import encoder_of
from isotrope.training.time_limit import SHORTEST, TimeLimit, of_steps

_OF_OBJECTIVES = ("objective", "objective_settings", "query_prompt", "passage_prompt")
_SAVED = 0.1  # share of the tokens; texts are not cut earlier to save less
_LONG = 3  # minutes from which the time of a training is printed before it begins
_FEW = 0.8  # of the records to hold out; if fewer are, the recipe says so
_STEPS = 0.6  # share of --minutes for reading and steps, as planned at first; the rest: scores
_REJECTED = {  # by --prefer
    "best": "not better",
    "original": "not better by more than two standard errors",
    "trained": "worse by more than two standard errors",
}
_KNOWN, _UNKNOWN = 0.13, 0.4  # losses before training at which the rate is _RATE / 10 and _RATE
_RATE, _PAIRS = 3e-4, 5_000  # learning rate of six layers; pairs trained on in all epochs (1 to 8)
_LAYERS = (3, 6)  # with so many layers, the rate is twice _RATE, and _RATE (docs/LOG.md)


@dataclass(frozen=True)
class Choice:
    """A value that ``--recipe auto`` chooses for a setting."""

    name: str
    value: Any
    why: str  # choices with the same reason are printed on one line


def with_recipe(
    settings: TrainSettings, *, resume: bool, lines: bool = True
) -> tuple[TrainSettings, TimeLimit | None]:
    """Choose the settings that are not given; with ``lines`` or progress, print the choices.

    Returns: All settings, and the plan with which a run with ``--minutes`` corrects its steps.
    """
    began, planned = time.time(), early_checks.recipe_applies(settings)
    settings.check_used(warn, planned=planned)
    settings = _with_loss(settings, planned=planned)
    is_shown = lines or settings.progress
    is_begun = RunFolder(settings.output).config.is_file()
    if is_shown and not is_begun:
        _name_labels(settings)
    if not planned:
        _name_defaults(settings)
        return settings, None
    early_checks.check_folder(Path(settings.output), settings, resume=resume)
    if is_begun or not early_checks.chosen_later(settings):
        return settings, TimeLimit.read(RunFolder(settings.output).plan)  # of the resumed run
    encoder = encoder_of(settings)
    say = warn if is_shown else lambda line: None
    say("choosing settings: reading the data, and measuring the encoder on a part of it")
    with showing(show=is_shown):
        facts = recipe_facts.facts_of(encoder, settings)
    made = [each for each in _choices(facts, encoder, settings) if _applies(each, settings)]
    chosen = settings.model_copy(update={choice.name: choice.value for choice in made})
    for line in (*_explained(facts, made, settings), *_estimated(facts, chosen)):
        say(line)
    return chosen, _time_limit(facts, encoder, settings, chosen, began)


def _choices(facts: Facts, encoder: SentenceEncoder, settings: TrainSettings) -> list[Choice]:
    """Return the choices for the kind of data."""
    if facts.kind == "scored pairs":
        return _for_scores(facts, encoder, settings)
    return (_for_texts if facts.columns == 1 else _for_pairs)(facts, encoder, settings)


def _time_limit(
    facts: Facts,
    encoder: SentenceEncoder,
    settings: TrainSettings,
    chosen: TrainSettings,
    began: float,
) -> TimeLimit | None:
    """Return the plan with which a run with ``--minutes`` corrects its steps."""
    if settings.minutes is None:
        return None
    unlimited = settings.model_copy(update={"minutes": None})
    wanted = {each.name: each.value for each in _choices(facts, encoder, unlimited)}
    lengths = (chosen.max_length, wanted["max_length"], SHORTEST)
    own, longer, shorter = (np.minimum(facts.tokens, length).sum() for length in lengths)
    derived = {
        "prefer": "prefer" in wanted and chosen.prefer != "original",
        "eval_every": "eval_every" in wanted and settings.patience is not None,
        "log_every": facts.columns > 1,
    }
    return TimeLimit(
        settings.minutes,
        {name: wanted[name] for name in sorted(LIMITED & wanted.keys())},
        frozenset(name for name in derived.keys() - settings.model_fields_set if derived[name]),
        second=wanted.get("refit", settings.refit),
        longer=float(longer / own),
        shorter=float(shorter / own),
        began=began,
    )


def _applies(choice: Choice, settings: TrainSettings) -> bool:
    """Return whether a choice replaces a setting, which is not given or has to be lowered."""
    if choice.name == "objective_settings" or choice.name not in settings.model_fields_set:
        return True  # the choice of objective settings includes what is given
    return choice.name in LIMITED and choice.value < getattr(settings, choice.name)


def _with_loss(settings: TrainSettings, *, planned: bool) -> TrainSettings:
    """Choose the loss of scored pairs if the recipe will not; check what their loss takes."""
    if settings.loss is not None or not early_checks.takes_scores(settings):
        return settings
    reading = early_checks.reading_of(settings, settings.inputs)
    early_checks.first_record(settings, reading)
    if planned or reading.kind != "scored pairs":
        return settings
    warn(f"--loss {OF_SCORES[0]}: this loss learns the order of the scores")
    return settings.model_copy(update={"loss": OF_SCORES[0]})


def _name_defaults(settings: TrainSettings) -> None:
    """Print which settings have the defaults of papers although the recipe was to choose."""
    if settings.recipe == "auto" and not {"learning_rate", "epochs"} & settings.model_fields_set:
        warn(
            f"check learning rate ({settings.learning_rate:g}), epochs ({settings.epochs:g}), "
            f"length limit ({settings.max_length} tokens) and head ({settings.head}): these "
            "are SimCSE's values, or your own. --recipe auto chooses none of them in this run"
        )


def _name_labels(settings: TrainSettings) -> None:
    """Print how to train with class labels that are not read as such."""
    files, is_one = settings.inputs, len(settings.datasets) == 1
    is_read_here = settings.views == "auto" and settings.streaming is None
    if not is_one or not is_read_here or any(IN_MEMORY in file for file in files):
        return
    next(iter(reading := early_checks.reading_of(settings, files)))
    if labels := unread_labels(reading):
        warn(spell(labels))


def _explained(facts: Facts, made: Sequence[Choice], settings: TrainSettings) -> Iterator[str]:
    """Yield a line on the data, then a line for each reason with the flags that it explains."""
    kinds = {1: "single texts", 2: "pairs", 3: "pairs with hard negatives"}
    kind = facts.kind if facts.kind in ("scored pairs", "labelled texts") else kinds[facts.columns]
    start = facts.start
    shared = "text" if settings.groups is None else "text or group"
    linked = f", {start.linked:.0%} of which share a {shared} with others" if start.linked else ""
    linked *= facts.kind != "labelled texts"  # each is the positive of another
    chose = "--recipe auto chose these settings (SimCSE's: --recipe papers)"
    first, different = "the first " * facts.more, "different " * bool(facts.repeated)
    yield f"{chose} for {first}{facts.records:,} {different}{kind}{linked}:"
    chosen = {choice.name: choice.value for choice in made}
    if start.answers and chosen.get("learning_rate", 0) > 1e-4 and chosen.get("epochs", 0) > 3:
        yield f"  {recipe_facts.ANSWERS.format(start.answers)}"
    if start.chance:
        yield f"  {recipe_facts.CHANCE[facts.kind]}"
    told = [choice for choice in made if choice.value != ""]
    for why, choices in groupby(told, lambda choice: choice.why):
        yield f"  {' '.join(flag for choice in choices for flag in _flags(choice))}: {why}"


def _estimated(facts: Facts, chosen: TrainSettings) -> Iterator[str]:
    """Yield a line on the time that all steps take, if it is long and nothing limits it."""
    epochs = _wanted(1.0, facts, chosen) * (2 if chosen.refit else 1)
    minutes = epochs * _epoch_seconds(facts, chosen.max_length) / 60
    if chosen.minutes is None and chosen.devices == 1 and minutes >= _LONG:
        time_of = f"{minutes:.0f} minutes" if minutes < 100 else f"{minutes / 60:.1f} hours"
        about = "at least" if facts.more else "about"
        yield f"  the steps take {about} {time_of} as measured here; `--minutes N` sets a limit"


def _flags(choice: Choice) -> Iterator[str]:
    """Yield the flags of a choice."""
    if choice.name != "objective_settings":
        yield named(choice.name, choice.value).strip("`")
        return
    for key, value in choice.value.items():
        yield named(f"objective.{key}", value).strip("`")


def _for_pairs(facts: Facts, encoder: SentenceEncoder, settings: TrainSettings) -> list[Choice]:
    """Return the choices for pairs."""
    before = facts.start.loss
    loss = _UNKNOWN if before is None else before
    left = float(np.interp(loss, (_KNOWN, _UNKNOWN), (0.1, 1)))
    size, (query, passage) = _batch(facts, settings), own_prompts(encoder)
    own = settings.objective_settings
    both = "the loss of each step; it compares each text of a pair with all others in the batch"
    state = "there is much to learn" if left == 1 else "the encoder already ranks many pairs well"
    why = "no loss was measured before training, so these are the values for much to learn"
    if before is not None:
        chance = f"chance is {math.log(BATCH):.2f}"
        why = f"{state} (InfoNCE before training: {before:.3g}, {_UNKNOWN} is much, {chance})"
    wanted = _wanted(float(np.clip(round(left * _PAIRS / facts.records), 1, 8)), facts, settings)
    longest, clause = recipe_facts.limit_of(settings, encoder), encoder.limit_clause
    length = _length(longest, clause, min(1.0, wanted), facts, settings)
    steps, until = _until(wanted, facts, settings, length.value, why)
    often = [Choice("log_every", of_steps(steps)["log_every"], "the training has few steps")]
    return [
        Choice("objective", early_checks.OBJECTIVE, both),
        Choice("objective_settings", {"temperature": recipe_facts.TEMPERATURE, **own}, both),
        Choice("head", "none", "a head helps with single texts only"),
        length,
        Choice("query_prompt", query, "the prompt that the encoder was trained with"),
        Choice("passage_prompt", passage, "the prompt that the encoder was trained with"),
        *_watched(facts, settings, steps),
        *_twice(facts, settings),
        *(often if often[0].value != settings.log_every else []),
        Choice("batch_size", size, "in a batch, each pair is compared with all others"),
        _rate(left, encoder, until.why),
        until,
        Choice("warmup", 0.1, until.why),
        Choice("between", 0.7, "the saved weights are a mean of original and trained weights"),
    ]


def _rate(left: float, encoder: SentenceEncoder, why: str) -> Choice:
    """Return the learning rate; a step turns the embeddings of fewer layers less."""
    config = getattr(getattr(encoder.model[0], "model", None), "config", None)
    layers = getattr(config, "num_hidden_layers", _LAYERS[1])  # static embeddings have none
    faster = float(np.interp(layers, _LAYERS, (2, 1)))
    if faster > 1:
        why = f"few layers ({layers}) learn at {faster:.2g} times the rate of {_LAYERS[1]} or more"
    return Choice("learning_rate", float(f"{_RATE * left * faster:.1g}"), why)


def _for_scores(facts: Facts, encoder: SentenceEncoder, settings: TrainSettings) -> list[Choice]:
    """Return the choices for scored pairs; only loss and prompts differ from pairs."""
    query, why = own_prompts(encoder)[0], "the query prompt is put before both texts of a pair"
    return [
        Choice("loss", OF_SCORES[0], "this loss learns the order of the scores"),
        *(Choice(name, query, why) for name in ("query_prompt", "passage_prompt")),
        *(c for c in _for_pairs(facts, encoder, settings) if c.name not in _OF_OBJECTIVES),
    ]


def _length(longest: int, why: str, epochs: float, facts: Facts, settings: TrainSettings) -> Choice:
    """Choose the largest limit of tokens, halved if that saves time, with which the epochs fit."""
    length, halved = longest, 0 if "max_length" in settings.model_fields_set else longest
    while halved >= 2 * SHORTEST and _within(epochs, facts, settings, length) < epochs:
        halved //= 2
        fewer, tokens = (np.minimum(facts.tokens, limit).sum() for limit in (halved, length))
        length = halved if fewer <= (1 - _SAVED) * tokens else length
    if length < longest:
        why = f"--minutes {settings.minutes or 0:g} has no time for an epoch with longer texts"
    return Choice("max_length", length, why)


def _within(epochs: float, facts: Facts, settings: TrainSettings, length: int) -> float:
    """Return the epochs that fit into ``--minutes``, a first estimate; scores are not counted."""
    if settings.minutes is None:
        return epochs
    planned = 60 * settings.minutes * _STEPS
    epoch = max(_epoch_seconds(facts, length), 1e-9)
    return min(epochs, float(f"{max(planned - facts.spent, planned / 10) / epoch:.3g}"))


def _epoch_seconds(facts: Facts, length: int) -> float:
    """Return the seconds of an epoch with texts that are cut after ``length`` tokens."""
    shorter = np.minimum(facts.tokens, length).sum() / facts.tokens.sum()
    return float(facts.trained * shorter * facts.seconds)


def _wanted(epochs: float, facts: Facts, settings: TrainSettings) -> float:
    """Return the epochs to train if time suffices: those given (``--max-steps``), or ``epochs``."""
    if settings.max_steps is not None:
        return settings.max_steps / (facts.trained / _batch(facts, settings))
    return settings.epochs if "epochs" in settings.model_fields_set else epochs


def _until(
    wanted: float, facts: Facts, settings: TrainSettings, length: int, why: str
) -> tuple[int, Choice]:
    """Return the steps that fit into ``--minutes``, and the choice that says so."""
    epochs = _within(wanted, facts, settings, length)
    steps, whole = max(1, int(epochs * (facts.trained / _batch(facts, settings)))), epochs >= wanted
    most = settings.max_steps
    fits = f"{epochs:g} of {wanted:g} epochs (steps: about {steps:,})"
    fits = fits if most is None else f"{steps:,} of {most:,} steps"
    fits = "" if whole else f"--minutes {settings.minutes:g} has time for {fits}"
    why = f"{why}; {fits}; the first steps correct this estimate" if fits else why
    if most is None:
        return steps, Choice("epochs", epochs, why)
    steps = most if whole else steps
    return steps, Choice("max_steps", steps, why)


def _for_texts(facts: Facts, encoder: SentenceEncoder, settings: TrainSettings) -> list[Choice]:
    """Return the choices for single texts: SimCSE's settings, checked on held-out text."""
    size, wanted = _batch(facts, settings), _wanted(1.0, facts, settings)
    longest = min(recipe_facts.limit_of(settings, encoder), 128)
    clause = f"at most 128 for single texts; {encoder.limit_clause}"
    length = _length(longest, clause, min(1.0, wanted), facts, settings)
    loss, why = facts.start.loss, "single texts need one epoch"
    if loss is not None:
        much = "much" if loss >= _UNKNOWN else "little"
        why += f"; they can teach this encoder {much} (InfoNCE before training: {loss:.2g}, "
        why += f"{_UNKNOWN} is much, chance is {math.log(BATCH):.2f})"
    steps, until = _until(wanted, facts, settings, length.value, why)
    return [
        length,
        *_watched(facts, settings, steps),
        Choice("batch_size", size, "the other texts of a batch are the negatives"),
        until,
        Choice("between", 0.5, "the saved weights lie midway between original and trained weights"),
    ]


def _watched(facts: Facts, settings: TrainSettings, steps: int) -> list[Choice]:
    """Return the choices that hold out data to compare the model before and after training."""
    is_given, split = "dev" in settings.model_fields_set, facts.split
    if is_given and settings.dev is None:
        return []
    if not is_given and not split.share:
        hint = f"{split.lacks} to hold some out for a score; add `--dev FILE`"
        return [Choice("eval_every", 0, hint) if settings.holdout else Choice("holdout", 0.0, hint)]
    derived = of_steps(steps)
    prefer = _preferred(facts, settings, str(derived["prefer"]))
    why = _why_saved(facts, settings, prefer)
    every = 0 if settings.patience is None else derived["eval_every"]
    held_out = [Choice("dev", "auto", why), Choice("holdout", round(split.share, 4), why)]
    choices = [*([] if is_given else held_out), Choice("eval_every", every, why)]
    if prefer is not None:
        choices.append(Choice("prefer", prefer, why))
    if facts.kind == "labelled texts" and settings.dev in (None, "auto"):
        several = "many texts have the label of a query, and this score counts all of the first ten"
        choices.append(Choice("dev_metric", "ndcg@10", several))
    return choices


def _teaches_little(facts: Facts) -> bool:
    """Return whether single texts have little to teach, so that a training must prove its gain."""
    return facts.columns == 1 and (facts.start.loss or 0) < _UNKNOWN


def _preferred(facts: Facts, settings: TrainSettings, by_steps: str) -> str | None:
    """Return the choice of ``--prefer``; None if the setting is kept."""
    if "prefer" in settings.model_fields_set:
        return None
    if _teaches_little(facts) or facts.start.chance:
        return "original"
    # few held-out pairs can reject a training, but choose its best step only if --patience does
    return by_steps if facts.columns > 1 and settings.patience is None else None


def _why_saved(facts: Facts, settings: TrainSettings, prefer: str | None) -> str:
    """Return when the original model is saved, why so, and on which scores."""
    fault, is_known = _REJECTED[prefer or settings.prefer], facts.start.loss is not None
    on_pairs = facts.columns > 1 and facts.split.share > 0 and settings.dev in (None, "auto")
    why = f"the original model is saved if the trained one is {fault}"
    why += " on held-out pairs" * on_pairs
    why += " (so few steps change little)" * (prefer == "best")
    why += " (the texts can teach it little)" * (is_known and _teaches_little(facts))
    return f"{why}, which {_apart(facts, settings)}" if on_pairs else why


def _apart(facts: Facts, settings: TrainSettings) -> str:
    """Return a phrase on what held-out pairs share with others, and why they may be few."""
    split, wanted = facts.split, facts.split.share * facts.records
    if not split.apart:
        return "may share a text with others"
    phrase = "share no text with the others"
    is_free = "holdout" not in settings.model_fields_set and facts.start.linked > 0
    if is_free and split.held < _FEW * wanted:
        more = min(0.5, split.share * wanted / split.held)
        phrase += (
            f" ({split.held:,} in place of about {wanted:,.0f}, because linked pairs stay "
            f"together; `--holdout {more:.2g}` holds out more)"
        )
    return phrase


def _twice(facts: Facts, settings: TrainSettings) -> list[Choice]:
    """Return the choice of a second training on all pairs, if some are held out."""
    # a second training has no score, so --patience cannot end it
    without = settings.devices > 1 or settings.patience or without_mean(settings)
    elsewhere = "dev" in settings.model_fields_set and settings.dev != "auto"
    if without or not facts.split.share or elsewhere:
        return []
    why = "a second training, about as long, has the held-out pairs too; both models are averaged"
    why += ", if --minutes has time for it" * (settings.minutes is not None)
    return [Choice("refit", True, why)]


def _batch(facts: Facts, settings: TrainSettings) -> int:
    """Return the batch size: 64, or less for a small data set."""
    if "batch_size" in settings.model_fields_set:
        return settings.batch_size
    return max(2, min(BATCH, int(0.8 * facts.trained)))
