"""Tables of the protocol for sentence embeddings, from the trainings that have finished."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from isotrope.core import Result
from papers import text_protocol as protocol
from papers.machinery.job import PaperJob, brief
from papers.machinery.verdicts import spread
from papers.text_protocol import LOSSES, Find

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
    parts += _by_task(encoder, find)
    if not elsewhere:
        parts += _tuning(encoder, find)
        parts += _curves(encoder, find) + _passes(encoder, find)
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
        "",
        "## Settings: best on dev at the best rate, 250 steps, seed 0",
        "",
        "The published hyperparameters are one of the six sets; the best, in bold, are trained "
        "with five seeds.",
        "",
        *_settings(encoder, find),
    ]


_TASKS = {
    "seven STS tasks": ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "average"),
    "seven transfer tasks": ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "transfer"),
}


def _by_task(encoder: str, find: Find) -> list[str]:
    """Tables 3 and 4 of Li et al. 2024 and table 1 of Nie et al. 2023, task by task."""
    lines = []
    for title, tasks in _TASKS.items():
        first = find(protocol.start(encoder))
        rows = [["before training", *(_format(_metric(first, f"{task} first")) for task in tasks)]]
        for name in LOSSES:
            jobs = [] if name == "baseline" else protocol.trainings(encoder, find, name)
            cells = [_over_seeds(jobs, find, f"{task} best") for task in tasks]
            if any(cell != "-" for cell in cells):
                rows.append([name, *cells])
        if len(rows) > 1:
            lines += ["", f"## The {title}", "", *table(["loss", *tasks], rows)]
    return lines


def _settings(encoder: str, find: Find) -> list[str]:
    """What each loss was tuned among, and how it fared."""
    rows = []
    for loss in LOSSES.values():
        if not loss.grid or (at := protocol.rate(encoder, loss, find)) is None:
            continue
        results = [find(protocol.short(encoder, loss, values, at)) for values in loss.grid]
        scores = [_metric(result, "dev best") for result in results]
        cells = []
        for values, score in zip(loss.grid, _best_in_bold(scores), strict=True):
            shown = brief({k: v for k, v in values.items() if k != "variant"})
            cells.append(f"{shown}: {score}")
        rows.append([loss.name, f"{at:g}", *cells])
    return table(["loss", "rate", *(f"set {i}" for i in range(1, 7))], rows)


def _curves(encoder: str, find: Find) -> list[str]:
    """Figures 6 and 8(c) of Li et al. 2024."""
    lines = [
        "",
        "## Li et al. 2024, figures 6 and 8(c): eq. 5 with one value varied, 250 steps",
        "",
        "Five seeds where a claim names the value, else one. GD is the mean dissipation: at 1 "
        "nothing was stopped. The cosine is of held-out positives after the last step.",
    ]
    for name, varied in protocol.CURVES.items():
        rows = []
        for value in varied:
            jobs = protocol.trainings(encoder, find, f"baseline {name}={value:g}")
            results = [result for job in jobs if (result := find(job)) is not None]
            cosines = [_last_look(result).get("positive cosine") for result in results]
            closeness = spread([c for c in cosines if c is not None])
            shown = "-" if closeness is None else closeness.text(3)
            dissipation = _components(jobs, find)[0]
            rows.append([f"{value:g}", _over_seeds(jobs, find, "dev best"), dissipation, shown])
        lines += ["", *table([name, "dev", "GD", "cosine of positives"], rows)]
    return lines


def _last_look(result: Result) -> Mapping[str, Any]:
    looks: Sequence[Mapping[str, Any]] = result.details.get("looks") or [{}]
    return looks[-1]


def _passes(encoder: str, find: Find) -> list[str]:
    """Figures 1 and 3 of Nie et al. 2023."""
    probes = ("contrastive", "alignment", "uniformity")
    rows = []
    for name in protocol.PASSES:
        jobs = protocol.trainings(encoder, find, name)
        results = [result for job in jobs if (result := find(job)) is not None]
        cells = [_over_seeds(jobs, find, f"{metric}") for metric in ("dev best", "dev last")]
        cells += [_over_seeds(jobs, find, f"{metric} best") for metric in ("average", "transfer")]
        for probe in probes:
            courses = [[r[f"dev {probe}"] for r in of.details["looks"][1:]] for of in results]
            ends = [(c[0], min(c), c[-1]) for c in courses]
            means = [f"{statistics.fmean(column):.2f}" for column in zip(*ends, strict=True)]
            cells.append(" / ".join(means) or "-")
        rows.append([name.removesuffix(" pass"), *cells])
    header = ["training", "dev, best", "dev, last", "STS", "transfer"]
    header += [f"dev {p}" for p in probes]
    return [
        "",
        "## Nie et al. 2023, figures 1 and 3: passes over 256,000 sentences, three seeds",
        "",
        "Probes on STS-B's pairs scored above 4, whatever is trained: after 125 steps / lowest / "
        "after the last of 4,000; means over seeds.",
        "",
        *table(header, rows),
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
        rows.append([loss.name, brief(loss.values), *_best_in_bold(scores)])
    return table(["loss", "settings", *(f"{rate:g}" for rate in rates)], rows)


def final_rows(encoder: str, find: Find) -> list[list[str]]:
    """Return the encoder before training, as it is and whitened, and every loss."""
    blank = ["-"] * len(_PARTS)
    first, confirming = find(protocol.start(encoder)), encoder in protocol.CONFIRMING
    rows = []
    for name, suffix in (("before training", " first"), ("whitened", " whitened first")):
        kinds = ("dev", "average", "transfer")
        final = [_format(_metric(first, f"{kind}{suffix}")) for kind in kinds]
        rows.append([name, "-", "-", *final, *blank])
    for loss in LOSSES.values():
        jobs = protocol.trainings(encoder, find, loss.name)
        if loss.name != "baseline" and (not confirming or any(map(find, jobs))):
            rows.append(final_row(loss.name, jobs, find))
    return rows


def best_dev(jobs: Sequence[PaperJob], find: Find) -> str:
    """Return the best score on dev of the trainings that choose a rate."""
    scores = [_metric(find(job), "dev best") for job in jobs]
    return _format(max((score for score in scores if score is not None), default=None))


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


def _best_in_bold(scores: Sequence[float | None]) -> list[str]:
    best = max((score for score in scores if score is not None), default=None)
    return [f"**{s:.2f}**" if s is not None and s == best else _format(s) for s in scores]


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
