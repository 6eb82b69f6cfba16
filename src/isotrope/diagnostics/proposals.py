"""Words that verdicts share: changes as flags of ``isotrope train`` or for another trainer."""

from dataclasses import replace

from isotrope.diagnostics import readings
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Evidence
from isotrope.diagnostics.verdict import Found, crosses
from isotrope.paradigm.parts import Dissipation, Weight

NOTE_SCORES = "call doctor.anatomy.note(dev=SCORE) after each evaluation; a larger SCORE is better"
"""Change that shows a custom loop's scores to the Doctor."""

_TIMES = {10: "ten times", 0.1: "a tenth of", 1 / 3: "a third of"}


def rate_flag(case: RunEvidence, factor: float) -> str:
    """Return the flag for ``factor`` times the learning rate."""
    rate = readings.planned(case, "learning-rate")
    if rate is None:
        return f"{_TIMES[factor]} the --learning-rate of this run"
    return f"--learning-rate {factor * rate:.2g}"


def rate_in_trainer(case: RunEvidence, factor: float = 0.1) -> str:
    """Return ``factor`` times the learning rate, in the words of the trainer."""
    rates = case.series("learning_rate")  # of a schedule, the highest counts
    rate = case.settings.get("learning-rate") or max(rates, default=None)
    if not rate:
        return f"{_TIMES[factor]} the learning rate"
    return f"{case.words.rate.format(f'{factor * float(rate):.2g}')} (now {float(rate):g})"


def objective_flag(case: RunEvidence, part: str, name: str, value: float) -> str:
    """Return the flag for the temperature or margin (``name``) of a ``part`` of the gradient."""
    if isinstance(component := readings.deciding_part(case, part), Dissipation | Weight):
        return f"--objective.{part} {replace(component, **{name: value}).short()}"
    return f"--objective.{name} {value:g}"


def larger_batch(case: RunEvidence) -> str:
    """Return a batch four times as large, of at least 64 rows, in the words of the trainer."""
    now = case.batch_size
    change = case.words.batch.format(max(64, 4 * (now or 16)))
    change += "" if now is None else f" (now {now})"
    if case.words.cached and readings.is_contrastive(case):
        change += case.words.cached.format(max(8, min(32, now or 32)))
    return change


def harder_negatives(case: RunEvidence) -> str:
    """Return harder negatives, or twice the temperature (if it is unknown, a larger batch)."""
    tau = readings.loss_temperature(case)
    if tau is None:
        return f"{larger_batch(case)}, or {case.words.negatives}"
    return f"{case.words.of_temperature(2 * tau, tau)}, or {case.words.harder}"


def unchanged_weights(case: RunEvidence) -> Found | None:
    """Return a sign that the weights do not change, and the remedy; None without such a sign."""
    rates, moved, rate = case.series("learning_rate"), case.settings.get("moved"), case.words.rate
    steps = (Evidence("logged_steps", len(case.rows)),)
    if crosses("logged_steps", len(rates or case.rows)):
        return None
    if rates and not any(rates):
        why = "The learning rate was 0 at all logged steps: no weight has changed."
        return Found(steps, why, case.words.instead(rate, 2e-5, 0.0))
    if any(loss.get("family") in readings.UNREAD for loss in case.losses):
        return None  # a loss of 0 has no gradient; another finding names this cause
    if moved is False:
        why = "No trained weight has changed since the first measured step."
        step = f"call optimizer.step() after backward(), with {rate.format('2e-5')}"
        return Found(steps, why, f"{step} and the parameters of this model")
    # with a gradient cache, the graph of the loss ends at embeddings
    several_scores = len({score for _, score in case.scores}) > 1
    shown = moved or readings.loss_falls(case) or several_scores
    if shown or case.settings.get("trainer") != "loop":
        return None
    why = "The loss has not fallen, and its graph does not show whether weights change."
    return Found(steps, why, NOTE_SCORES)
