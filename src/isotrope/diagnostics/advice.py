"""Phrases changes that several verdicts propose for trainers other than ``isotrope train``."""

from isotrope.diagnostics.evidence import RunEvidence


def larger_batch(case: RunEvidence) -> str:
    """Return advice to make the batch four times as large."""
    now = case.batch_size
    change = case.words.batch.format(max(64, 4 * (now or 16)))
    change += "" if now is None else f" (now {now})"
    if case.words.cached and is_contrastive(case):
        change += case.words.cached.format(max(8, min(32, now or 32)))
    return change


def harder_negatives(case: RunEvidence) -> str:
    """Return advice to double the temperature or enlarge the batch, and use harder negatives."""
    tau = loss_temperature(case)
    if tau is None:
        return f"{larger_batch(case)}, or {case.words.negatives}"
    return f"{case.words.of_temperature(2 * tau, tau)}, or {case.words.harder}"


def slower(case: RunEvidence) -> str:
    """Return advice to divide the learning rate by ten."""
    rate = case.settings.get("learning-rate")
    if rate is None:
        return case.words.rate.format("RATE/10")
    return f"{case.words.rate.format(f'{float(rate) / 10:.2g}')} (now {float(rate):g})"


def is_contrastive(case: RunEvidence) -> bool:
    """Return whether the first named loss is the contrastive loss of its trainer."""
    name = next((str(loss["name"]) for loss in case.losses if loss.get("name")), "")
    return bool(case.words.contrastive_name) and case.words.contrastive_name in name


def loss_temperature(case: RunEvidence) -> float | None:
    """Return the temperature of the losses as recognised, or as measured."""
    temperatures = [loss["temperature"] for loss in case.losses if loss.get("temperature")]
    return float(temperatures[0]) if temperatures else case.end("temperature")
