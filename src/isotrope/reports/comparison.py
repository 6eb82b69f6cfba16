"""Compares runs: writes their numbers side by side, and names the best run."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from isotrope.core.legible import digits_of, number, parameters, signed
from isotrope.diagnostics.findings import Diagnosis
from isotrope.diagnostics.metrics import METRICS
from isotrope.measures.bootstrap import LEVEL
from isotrope.reports.runs import Run, dev_digits
from isotrope.reports.stored_scores import NOISE, TITLE, best_on_tests, stored_scores

_MOST_NAMED = 3  # runs whose faults are named in the summary
_SCORES = {"dev_start", "dev_best", "dev_final", "linear"}
_COMPARED = {metric.column: metric for metric in METRICS if metric.heading}


@dataclass(frozen=True)
class ComparisonCell:
    """One cell of a table.

    Attributes:
        text: Content of the cell; a dash if a number is missing.
        title: Why the number is missing; empty if there is a number.
        number: Whether the cell is in a column of numbers.
        gain: Difference to the score before training, with its sign; empty in other columns.
        best: Whether the number is the highest score of all runs.
        note: A short remark on the number.
    """

    text: str
    title: str = ""
    number: bool = True
    gain: str = ""
    best: bool = False
    note: str = ""


def columns(runs: Sequence[Run]) -> list[tuple[str, str, str]]:
    """Return a tuple (key, heading, meaning) for each column of the comparison of these runs."""
    kinds = {"images" if run.of_images else "text" for run in runs}
    score = "kNN" if kinds == {"images"} else "Dev"
    return [
        (metric.column, metric.heading.replace("Dev", score), metric.definition)
        for metric in _COMPARED.values()
        if not metric.only or metric.only in kinds
    ]


def _dev_marks(runs: Sequence[Run]) -> list[str]:
    """Return a mark of the dev data of each run; empty texts if the scores can be compared."""
    scored = [run for run in runs if run.metric(run.saved) is not None]
    data = dict.fromkeys(run.dev_data for run in scored if run.finished)
    has_foreign = any(run.foreign for run in scored)  # another trainer records no dev data
    # an unfinished run has not recorded its dev data yet, but its settings determine them
    is_complete = all(run.finished for run in scored)
    settings_differ = not is_complete and len({run.dev_settings for run in scored}) > 1
    if len(scored) < 2 or not (has_foreign or len(data) > 1 or settings_differ):
        return [""] * len(runs)
    numbers = {one: f"dev data {i}" for i, one in enumerate(filter(None, data), start=1)}
    return [numbers.get(run.dev_data, "dev data not known") for run in runs]


def headline(runs: Sequence[Run]) -> str:
    """Return one sentence on which run to use; scores on test data are the better evidence."""
    if tested := best_on_tests(runs):
        return tested
    scored = [(score, run) for run in runs if (score := run.metric(run.saved)) is not None]
    if not scored:
        return f"No {runs[0].score_name} was measured, so the best run is not known."
    if any(_dev_marks(runs)):
        sentence = "The dev scores cannot be compared: their dev data differ or are not known."
        tests = [scores.test for run in runs for scores in stored_scores(run)]
        if len(set(tests)) < len(tests):
            sentence += f" Compare the runs by the scores on the same data in the table “{TITLE}”."
        return sentence
    score, run = max(scored, key=lambda pair: pair[0])
    start = run.metric("dev_start")
    if not run.saved_step or (start is not None and score <= start):
        return _no_gain(run)
    lead = f"{run.name} reached " if len(scored) == 1 else f"{run.name} has the highest score: "
    alone = " Only this run was scored." * (len(runs) > 1)
    return f"{lead}{_reached(run, dev_digits(runs))}{NOISE if len(scored) > 1 else alone}"


def _no_gain(run: Run) -> str:
    """Return a sentence on a run whose best score is not above that before training."""
    leads = {"worse": "Training made it worse", "undecided": "No clear gain"}
    lead = leads.get(run.outcome, "No gain")
    start, score, digits = run.metric("dev_start"), run.metric(run.saved), dev_digits([run])
    if not run.saved_step or start is None or score is None:
        return f"{lead}: the best model is the one before training (step 0)."
    scores = f"{number(score, digits)}, and the model before training {number(start, digits)}"
    return f"{lead}: the saved model (step {run.saved_step:,.0f}) has {scores}."


def _reached(run: Run, digits: int) -> str:
    """Return the score of a run, its gain, and whether the gain is noise."""
    score, start = run.metric(run.saved) or 0.0, run.metric("dev_start")
    text = f"{run.dev_name or 'dev score'} {number(score, digits)} at step {run.saved_step:,.0f}"
    if start is not None:
        text += f", {signed(score - start, digits)} over the model before training"
    return f"{text}{'' if run.outcome in ('improved', 'not known') else f': {run.outcome}'}."


def summary(diagnoses: Sequence[tuple[str, Diagnosis | None]], worse: Collection[str] = ()) -> str:
    """Return sentences that say which runs are healthy; empty if no run has a diagnosis.

    Args:
        diagnoses: The name and the diagnosis of each run; None if it was not diagnosed.
        worse: Names of the runs whose model training made worse.
    """
    diagnosed = [(name, diagnosis) for name, diagnosis in diagnoses if diagnosis is not None]
    if not diagnosed:
        return ""
    healthy = [name for name, diagnosis in diagnosed if diagnosis.healthy]
    fell = [name for name in healthy if name in worse]
    if len(diagnoses) == 1:
        but = ", but training made the model worse" if fell else ""
        return f"{diagnosed[0][1].words.capitalize()}{but}."
    but = f", but training made these models worse: {', '.join(fell)}" if fell else ""
    if len(healthy) == len(diagnoses):
        return f"All {len(healthy)} runs are healthy{but}."
    faults = [f"{name}: {found.words}. " for name, found in diagnosed if not found.healthy]
    named, more = "".join(faults[:_MOST_NAMED]), len(faults) - _MOST_NAMED
    if more > 0:
        named += f"{more} more {'run is' if more == 1 else 'runs are'} not healthy. "
    are, unknown = "is" if len(healthy) == 1 else "are", len(diagnoses) - len(diagnosed)
    rest = f", {unknown} not diagnosed" if unknown else ""
    return f"{named}{len(healthy)} of {len(diagnoses)} runs {are} healthy{rest}{but}."


class Pill(NamedTuple):
    """The label of a run: its text and its CSS class, ``healthy``, ``even`` or ``faulty``."""

    text: str
    css_class: str


def pill(diagnosis: Diagnosis, outcome: str) -> Pill:
    """Return the label of a run with this diagnosis and this outcome of its training."""
    words = diagnosis.words if outcome == "not known" else f"{diagnosis.words}; {outcome}"
    if not diagnosis.healthy or outcome == "worse":
        return Pill(words, "faulty")
    return Pill(words, "even" if outcome == "undecided" else "healthy")


def differing(runs: Sequence[Run]) -> list[str]:
    """Return a text for each run: its settings that differ from others', except the objective's."""
    own = [{} if run.foreign else run.settings for run in runs]
    known = [settings for settings in own if settings]
    names = dict.fromkeys(name for settings in known for name in settings)
    differ = [name for name in names if len({str(each.get(name)) for each in known}) > 1]
    shown = [n for n in differ if n not in ("output", "method") and "objective" not in n]
    return [parameters({n: x[n] for n in shown if x.get(n) not in (None, [])}) for x in own]


def twins(run: Run, runs: Sequence[Run]) -> str:
    """Return a sentence that names other runs with the same saved weights; "" if there are none."""
    same = [
        other.name
        for other in runs
        if other is not run and run.weights is not None and other.weights == run.weights
    ]
    return f"The saved weights equal those of {', '.join(same)}." if same else ""


def _why_missing(run: Run, key: str) -> str:
    """Return the reason why a run lacks the number ``key``."""
    if not run.finished and not run.foreign:
        return "not measured yet: the run has not written its result"
    kind = "images" if run.of_images else "text"
    if _COMPARED[key].only not in ("", kind):
        return f"not measured in a run on {kind}"
    if key.startswith("dev_"):
        missing = "labelled test images" if run.of_images else "--dev data"
        return f"not measured: the run had no {missing}"
    if key == "ratio":
        return "not defined: the ratio differs between coordinates, or all weights were 0"
    if key == "hardest_share":
        return "not defined: at the last measurement, dissipation was below 0.01 for all anchors"
    return "not measured in this run"


def _unsaved(run: Run, key: str) -> str:
    """Return "not saved" if a score belongs to another model than the saved one, else ""."""
    if key not in ("dev_best", "dev_final") or key == run.saved or not run.finished:
        return ""
    if run.of_images:
        return "" if run.metric("dev_best_step") == run.saved_step else "not saved"
    return "" if run.saved_step == run.steps.max(initial=0.0) else "not saved"


def _interval(run: Run) -> str:
    """Return the interval of the saved model's gain and its judgement, as the run recorded them."""
    saved = {} if run.judgement is None else run.judgement.numbers.get("saved", {})
    if "low" not in saved:
        return ""
    return f"{LEVEL:.0%} interval {saved['low']:+.2f} to {saved['high']:+.2f}: {run.outcome}"


def cells(runs: Sequence[Run]) -> list[list[ComparisonCell]]:
    """Return the cells of the comparison: one list for each run, without the name of the run."""
    marks = _dev_marks(runs)
    scores = [score for run in runs if (score := run.metric(run.saved)) is not None]
    best = max(scores, default=None) if len(runs) > 1 and not any(marks) else None
    digits = {key: _digits(runs, key) for key, _, _ in columns(runs)}
    return [
        [_cell(run, key, decimals, mark, best) for key, decimals in digits.items()]
        for run, mark in zip(runs, marks, strict=True)
    ]


def _digits(runs: Sequence[Run], key: str) -> int:
    """Return the number of decimals of a column of the comparison."""
    if (fixed := _COMPARED[key].digits) is not None:
        return fixed
    if key in _SCORES:
        return dev_digits(runs)
    return digits_of([value for run in runs if (value := run.metric(key)) is not None])


def _cell(run: Run, key: str, digits: int, mark: str, best: float | None) -> ComparisonCell:
    """Return a cell with a ``mark`` of the dev data; ``best`` is the highest of several scores."""
    if (value := run.metric(key)) is None:
        return ComparisonCell("\N{EN DASH}", _why_missing(run, key))
    is_saved, start = key == run.saved, run.metric("dev_start")
    gain = signed(value - start, digits) if is_saved and start is not None else ""
    notes = (mark if key in _SCORES else "", _unsaved(run, key), _interval(run) if gain else "")
    shown, note = number(value, digits), "; ".join(filter(None, notes))
    return ComparisonCell(shown, gain=gain, best=is_saved and value == best, note=note)
