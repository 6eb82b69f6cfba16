"""Sums up one run: whether training helped, what training changed, and what to do next."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from isotrope.core.legible import number, shortened, signed
from isotrope.core.spelling import with_folder
from isotrope.reports.runs import Run, dev_digits


def verdict(run: Run) -> str:
    """Return a sentence on a run: whether training helped or, if unknown, the best score."""
    best, step = run.metric("dev_best"), run.metric("dev_best_step")
    start, digits = run.metric("dev_start"), dev_digits([run])
    trainer = run.settings.get("trainer", "loop")
    other = "Your own training loop" if trainer == "loop" else f"The trainer of {trainer}"
    state = f"{other}, up to" if run.foreign else "In progress (or stopped) at"
    lead = "" if run.finished else f"{state} step {run.steps.max(initial=0.0):,.0f}: "
    if run.judgement is not None:
        second = line_on_refit(run.result.details) if run.result else ""
        text = "; ".join(filter(None, (run.judgement.sentence, second)))
    elif best is None:
        text = f"no {run.score_name} was measured."
    elif not step:
        text = f"no step has a better score than step 0 ({number(best, digits)})."
    else:
        gain = f" ({signed(best - start, digits)})" if start is not None else ""
        text = f"best {run.score_name} {number(best, digits)}{gain} at step {step:,.0f}."
    return _sentence(lead + text)


def _sentence(text: str) -> str:
    """Return the text with a full stop and, unless it starts with a name, a capital letter."""
    text = text.strip().rstrip(".")
    return f"{text}." if text.startswith("kNN") else f"{text[:1].upper()}{text[1:]}."


def changes(run: Run) -> list[str]:
    """Return lines on what a training changed, and on what to do next."""
    if run.result is None:
        return []
    try:
        return list(lines_on_changes(run.result.details, shlex.quote(str(run.folder))))
    except (KeyError, TypeError, ValueError, AttributeError):  # an edited result
        return []


def line_on_refit(details: Mapping[str, Any]) -> str:
    """Return a sentence on the second training, on all records; without one, an empty text."""
    if (second := details.get("refit")) is None:
        return ""
    return (
        "the saved weights are the mean of this model and of a second model, which was trained on "
        f"all {second['records']:,} records, so no record is left to score the saved weights on"
    )


def lines_on_changes(details: Mapping[str, Any], run: str) -> Iterator[str]:
    """Yield lines on the changes that a training made, and on what to do next.

    Args:
        details: ``details`` of the run's Result.
        run: The folder of the run, as a word of a command.
    """
    if queries := details.get("queries"):
        ranked = "MRR@10" in details["dev"]["name"]  # then 1 divided by a score is a rank
        what = "a higher rank" if ranked else "a better score"
        worst = "; the largest falls:" if queries["worst"] else ""
        yield (
            f"of {queries['all']} dev queries, {queries['better']} have {what} than before and "
            f"{queries['worse']} a {'lower' if ranked else 'worse'} one{worst}"
        )
        worded = _rank if ranked else lambda score: f"{100 * score:.0f}"
        for fall in queries["worst"]:
            before, after = worded(fall["before"]), worded(fall["after"])
            yield f"  {before} to {after}: {shortened(fall['query'])}"
    if (share := details.get("kept")) is not None:
        correlation = f"correlation {share / 100:.2f} (1: no change; a lower --between raises it)"
        yield f"similarities of general sentences before and after training: {correlation}"
    if line := details.get("next"):
        yield with_folder(line, run)


def _rank(reciprocal: float) -> str:
    return f"rank {1 / reciprocal:.0f}" if reciprocal else "beyond rank 10"
