"""Tables of the protocol for sentence embeddings, from the trainings that have finished."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from isotrope.core.result import Result
from papers import text_protocol as protocol
from papers.machinery.job import PaperJob, brief
from papers.machinery.verdicts import spread
from papers.text_protocol import LOSSES, Find

__all__ = ["HEADER", "final_row", "final_rows", "table", "tables"]

_PARTS = {"dissipation": "GD", "hardest_share": "W", "ratio": "R"}

HEADER = ("loss", "settings", "rate", "dev", "STS", "transfer", *_PARTS.values())
"""Of the rows of :func:`final_rows`."""


def tables(encoder: str, find: Find) -> str:
    """Return the stages as tables in Markdown: what was not measured is a dash."""
    elsewhere = f" on {tuned}" if (tuned := protocol.tuned_on(encoder)) != encoder else ""
    parts = [
        f"# Sentence embeddings on {encoder}",
        "",
        "Written by `python -m papers text`; docs/reproduce.md says what the stages are. Scores "
        "are 100 x Spearman; dev is STS-B's dev split, STS the average of the seven tasks, "
        "transfer the average of the seven tasks of classification (prototyping mode). Whitened is "
        "the encoder before training, by the statistics of 2,000 Wikipedia sentences.",
        "",
        f"## Final: the first five seeds, each loss as it was tuned{elsewhere}",
        "",
        *table(HEADER, final_rows(encoder, find)),
        "",
        "GD is the mean dissipation, W the share of the weight on the hardest negative, R the mean "
        "ratio: over the batches logged after step 0, and the seeds. Where W and R are missing, no "
        "anchor had a gradient, or the pull is no multiple of the positive. Means with sample "
        "standard deviations.",
    ]
    if not elsewhere:
        parts += _tuning(encoder, find)
    return "\n".join(parts) + "\n"


def _tuning(encoder: str, find: Find) -> list[str]:
    """The stage that chooses rates."""
    return [
        "",
        "## Rates: best on dev at the published hyperparameters, 250 steps, seed 0",
        "",
        _before(encoder, find),
        "",
        *_rates(encoder, find),
    ]


def _before(encoder: str, find: Find) -> str:
    """The encoder itself on dev."""
    first = find(protocol.start(encoder))
    raw, whitened = (_metric(first, f"dev{kind} first") for kind in ("", " whitened"))
    return f"Before training dev is {_format(raw)}, and whitened {_format(whitened)}."


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _rates(encoder: str, find: Find) -> list[str]:
    rows, rates = [], protocol.rates(encoder)
    for loss in LOSSES.values():
        jobs = [protocol.short(encoder, loss, loss.values, rate) for rate in rates]
        scores = [_metric(find(job), "dev best") for job in jobs]
        finished = [value for value in scores if value is not None]
        cells = [
            "-"
            if value is None
            else f"**{value:.2f}**"
            if value == max(finished)
            else f"{value:.2f}"
            for value in scores
        ]
        rows.append([loss.name, brief(loss.values), *cells])
    return table(["loss", "settings", *(f"{rate:g}" for rate in rates)], rows)


def final_rows(encoder: str, find: Find) -> list[list[str]]:
    """Return the encoder before training, as it is and whitened, and every loss."""
    blank = ["-"] * len(_PARTS)
    first, confirming = find(protocol.start(encoder)), encoder in protocol.CONFIRMING
    rows = []
    for name, suffix in (("before training", " first"), ("whitened", " whitened first")):
        final = [
            _format(_metric(first, f"{kind}{suffix}")) for kind in ("dev", "average", "transfer")
        ]
        rows.append([name, "-", "-", *final, *blank])
    for loss in LOSSES.values():
        jobs = protocol.trainings(encoder, find, loss.name)
        if loss.name != "baseline" and (not confirming or any(map(find, jobs))):
            rows.append(final_row(loss.name, jobs, find))
    return rows


def final_row(name: str, jobs: Sequence[PaperJob], find: Find) -> list[str]:
    """Return a loss as it was measured over seeds."""
    kinds = ("dev best", "average best", "transfer best")
    scores = [_over_seeds(jobs, find, kind) for kind in kinds]
    return [name, *_chosen_settings(jobs), *scores, *_components(jobs, find)]


def _chosen_settings(jobs: Sequence[PaperJob]) -> list[str]:
    """The hyperparameters and the rate that the stages before have chosen."""
    if not jobs:
        return ["-", "-"]
    settings: Mapping[str, Any] = jobs[0].settings
    values = {k.partition(".")[2]: v for k, v in settings.items() if k.startswith("objective.")}
    return [brief(values), f"{settings['learning_rate']:g}"]


def _over_seeds(jobs: Sequence[PaperJob], find: Find, metric: str) -> str:
    values = [_metric(find(job), metric) for job in jobs]
    return str(spread([value for value in values if value is not None]) or "-")


def _components(jobs: Sequence[PaperJob], find: Find) -> list[str]:
    """Mean of the batches logged after step 0 that have a component, over seeds."""
    trainings = [r.details["components"] for job in jobs if (r := find(job)) and r.details]
    cells = []
    for part in _PARTS:
        logged = [[r[part] for r in rows if r["step"] and part in r] for rows in trainings]
        mean = spread([statistics.fmean(values) for values in logged if values])
        cells.append("-" if mean is None else f"{mean.mean:.3g}")
    return cells


def _metric(result: Result | None, name: str) -> float | None:
    value = None if result is None else result.metrics.get(name)
    return float(value) if isinstance(value, int | float) else None


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
