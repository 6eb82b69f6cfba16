"""``python -m papers starts``: what an exchange gains, by how good the encoder is before training.

All verdicts on text rest on encoders that differ in their start. This varies the start alone: six
checkpoints of one pre-training (:data:`PRETRAINING`, seed :data:`SEED`). It was written down before
any of its trainings.

- Candidates are the checkpoints every 50 steps from step 150 to the end. Six are taken by their
  score on STS-B dev alone: the lowest, the highest, and those nearest to four values at equal
  distances in between.
- Losses: the four pairs of :data:`PAIRS`, InfoNCE and MET, with the hyperparameters that were
  chosen on ``raw-2x128-pmi``. The rate of each loss is the best of :data:`RATES` (250 steps,
  seed 0, by STS-B dev) at the second lowest and at the second highest start; each other start
  takes that of the nearer of these two.
- Trainings: 500 steps, five seeds, STS at the best step on dev, as everything else of
  ``python -m papers text``. The first seed of everything is trained before the second.
- Result: modified less original, by seed and start, with Student's 90% interval; and the slope of
  that gain against the start's dev score, one slope a seed, with its interval over the seeds.
  InfoNCE less the mean of the four originals is shown in the same way.

Step of the pre-training and mean cosine of the starts differ along with the score: the curve does
not tell these apart.
"""

import argparse
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isotrope.core import InputError, atomic_replace, exclusive_lock
from isotrope.data import load_sts_file
from isotrope.encoders import SentenceEncoder
from isotrope.evaluation import CachedEncoder
from isotrope.reports import Picture
from papers import encoder as raw
from papers import stages
from papers import text_protocol as protocol
from papers.machinery.data_registry import RAW, cache_folder
from papers.machinery.job import PaperJob
from papers.machinery.store import JobStore
from papers.machinery.verdicts import spread, with_interval
from papers.plots.charts import Chart, Series, charts
from papers.pretraining import initialized, pretrain
from papers.text_command import stored
from papers.text_tables import table

RESULTS = stages.RESULTS / "starts"
PRETRAINING, SEED = RAW, 1
FIRST, EVERY, COUNT = 150, 50, 6
RATES = (3e-4, 1e-3, 3e-3)
PAIRS = {f"modified{name}": name for name in ("mhe", "mhs", "barlowtwins", "vicreg")}
LOSSES = (*(name for pair in PAIRS.items() for name in pair), "infonce", "met")

Start = Mapping[str, Any]
"""A row of starts.json: name, step, dev, mean cosine, fingerprint."""


def chosen(rows: Sequence[Start]) -> list[Start]:
    """Return six checkpoints by their dev scores, the lowest first."""
    left = sorted(rows, key=lambda row: (row["dev"], row["step"]))
    ends = [left.pop(0), left.pop()]
    for wanted in np.linspace(ends[0]["dev"], ends[1]["dev"], COUNT)[1:-1]:
        ends.append(left.pop(int(np.argmin([abs(row["dev"] - wanted) for row in left]))))
    return sorted(ends, key=lambda row: (row["dev"], row["step"]))


def _values(name: str, raw_results: protocol.Find) -> protocol.Values:
    values = protocol.tuned(RAW, protocol.LOSSES[name], raw_results)
    if values is None:
        raise InputError(f"the settings of {name} are not known: run `python -m papers text` first")
    return values


def rates(
    starts: Sequence[Start], raw_results: protocol.Find
) -> dict[tuple[str, str], list[tuple[float, PaperJob]]]:
    """Return the trainings that choose rates, by loss and start."""
    return {
        (name, start["name"]): [
            (
                rate,
                protocol.short(
                    start["name"], protocol.LOSSES[name], _values(name, raw_results), rate
                ),
            )
            for rate in RATES
        ]
        for name in LOSSES
        for start in (starts[1], starts[-2])
    }


def finals(
    starts: Sequence[Start], find: protocol.Find, raw_results: protocol.Find
) -> dict[tuple[str, str], list[PaperJob]]:
    """Return the trainings that are judged, by loss and start; none of what has no rate yet."""
    trials = rates(starts, raw_results)
    low, high = starts[1], starts[-2]
    jobs: dict[tuple[str, str], list[PaperJob]] = {}
    for name in LOSSES:
        for start in starts:
            near = min((low, high), key=lambda tuned: abs(tuned["dev"] - start["dev"]))
            at = protocol.best(trials[name, near["name"]], find)
            if at is not None:
                jobs[name, start["name"]] = [
                    protocol.final(
                        start["name"], protocol.LOSSES[name], _values(name, raw_results), at, seed
                    )
                    for seed in protocol.SEEDS
                ]
    return jobs


def _made(data: Path, results: Path) -> list[Start]:
    """The six starts, made or found; refuses others than those of the results."""
    record, folder = results / "starts.json", cache_folder() / "encoders"
    part = folder / f"{PRETRAINING}-starts.part"
    starts = recorded(results)
    if starts and all((folder / start["name"]).is_dir() for start in starts):
        _check(starts, folder)
        return starts
    _pretrain(data, part)
    measured = json.loads((part / "course.json").read_text(encoding="utf-8"))
    for row in measured:
        name = f"{PRETRAINING}-step{row['step']}"
        if not (folder / name).is_dir():
            raw.rounded(part / f"step-{row['step']}")
            (part / f"step-{row['step']}").rename(folder / name)
        made = SentenceEncoder.load(folder / name, pooling="cls", device="cpu")
        row |= {"name": name, "fingerprint": made.fingerprint()}
    if starts:
        _check(starts, folder)
        return starts
    starts = chosen(measured)
    results.mkdir(parents=True, exist_ok=True)
    with atomic_replace(record) as temporary:
        about = {"pre-training": PRETRAINING, "seed": SEED}
        about |= {"candidates": measured, "starts": starts}
        temporary.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return starts


def _pretrain(data: Path, part: Path) -> None:
    """Pre-train, and measure every checkpoint that is a candidate."""
    if (part / "course.json").is_file():
        return
    dev = load_sts_file(data / "sts/stsb/dev.tsv")
    corpus, first = data / raw.CORPUS, raw.LINES[0]
    reference = raw.corpus_lines(corpus, first - raw.REFERENCE, first)
    recipe = replace(raw.RECIPES[PRETRAINING], every=EVERY)
    with exclusive_lock(part, "making starts"):
        encoder, tokens = initialized(recipe, raw.corpus_lines(corpus, *raw.LINES), part, SEED)
        summary = pretrain(
            recipe,
            encoder,
            tokens,
            part,
            seed=SEED,
            measure=lambda trained: raw.measured(CachedEncoder(trained), dev, reference),
            accept=lambda measures: False,
            tell=stages.say,
        )
        course = [row for row in summary["course"] if row["step"] >= FIRST]
        for row in course:
            row["step"] = int(row["step"])
        with atomic_replace(part / "course.json") as temporary:
            temporary.write_text(json.dumps(course), encoding="utf-8")


def _check(starts: Sequence[Start], folder: Path) -> None:
    """Refuse to continue on other encoders: rounding differs between kinds of processors."""
    for start in starts:
        here = SentenceEncoder.load(folder / start["name"], pooling="cls", device="cpu")
        if here.fingerprint() != start["fingerprint"]:
            raise InputError(
                f"{start['name']} is another encoder here than the one in starts.json, as this "
                "is another kind of processor: choose --output for trainings on these"
            )


def run(arguments: Sequence[str]) -> int:
    """Make the starts, train what is missing."""
    options = _parse(arguments)
    torch.set_num_threads(1)
    if not options.show:
        _train(options)
    if made := page(options.output):
        for name, content in (("starts.md", made[0].encode()), ("gains.svg", made[1].svg)):
            with atomic_replace(options.output / name) as temporary:
                temporary.write_bytes(content)
            print(options.output / name)
    return 0


def _train(options: argparse.Namespace) -> None:
    """Make the starts, choose rates, train what is judged, as far as time is."""
    raw_results = stored(RAW, stages.RESULTS / "text")
    starts = _made(options.data, options.output)
    store = JobStore(options.output / "cells")
    trials = [job for pairs in rates(starts, raw_results).values() for _, job in pairs]
    stages.say(f"stage rates: {len(trials)} trainings")
    if stages.train(trials, store, options.data, minutes=options.minutes):
        seeds = finals(starts, store.find, raw_results).values()
        jobs = sorted(itertools.chain.from_iterable(seeds), key=lambda job: job.seed)
        stages.say(f"stage final: {len(jobs)} trainings")
        stages.train(jobs, store, options.data, minutes=options.minutes)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    description = "Train the pairs of Li et al.'s table 3 from six checkpoints."
    parser = stages.parser("starts", description, "starts")
    add = parser.add_argument
    add("--minutes", type=float, metavar="M", help="start no training after so many")
    add("--show", action="store_true", help="run nothing: the page by what there is")
    return parser.parse_args(list(arguments))


def recorded(results: Path = RESULTS) -> list[Start]:
    """Return the six starts, the lowest score first; nothing before they are made."""
    record = results / "starts.json"
    if not record.is_file():
        return []
    starts: list[Start] = json.loads(record.read_text(encoding="utf-8"))["starts"]
    return starts


def gains(results: Path = RESULTS) -> dict[str, dict[str, dict[int, float]]]:
    """Return modified less original in STS, by pair, start and seed; what is there of it."""
    starts, store = recorded(results), JobStore(results / "cells")
    jobs = finals(starts, store.find, stored(RAW, stages.RESULTS / "text")) if starts else {}
    of = {of: protocol.scores(seeds, store.find) for of, seeds in jobs.items()}
    paired: dict[str, dict[str, dict[int, float]]] = {}
    for (modified, original), start in itertools.product(PAIRS.items(), starts):
        after, before = (of.get((name, start["name"]), {}) for name in (modified, original))
        if both := {seed: after[seed] - before[seed] for seed in after if seed in before}:
            paired.setdefault(original, {})[start["name"]] = both
    return paired


def page(results: Path = RESULTS) -> tuple[str, Picture] | None:
    """Return the gains by start as a table in Markdown, and their picture; None before the starts.

    A gain has Student's 90% interval over the seeds that are there.
    """
    rows, paired = recorded(results), gains(results)
    if not rows:
        return None
    lines, panels = [], []
    for name in PAIRS.values():
        by_start = [spread(paired.get(name, {}).get(row["name"], {})) for row in rows]
        lines.append([name, *map(with_interval, by_start)])
        half = [(of and of.count > 1 and of.interval[1] - of.mean) or None for of in by_start]
        means = [None if of is None else of.mean for of in by_start]
        series = Series("modified less original", [row["dev"] for row in rows], means, half)
        panels.append(Chart(name, [series], x="STS-B dev of the start", y="STS", marks={"0": 0.0}))
    header = ["loss", *(f"step {row['step']}: dev {row['dev']:.1f}" for row in rows)]
    text = [
        "# What exchanging the components gains, by the start",
        "",
        "Written by `python -m papers starts`, whose module says how it was decided beforehand.",
        sentence(results),
        "",
        *table(header, lines),
        "",
        "![Gains by the start's score, with 90% intervals](gains.svg)",
    ]
    return "\n".join(text) + "\n", charts(panels, columns=2)


def sentence(results: Path = RESULTS) -> str:
    """Say what the gains do with the start's score, or how far the trainings are."""
    paired = gains(results)
    complete = {name: of for name, of in paired.items() if len(of) == COUNT and _common(of)}
    if not complete:
        there = len(JobStore(results / "cells").seconds.get("text", []))
        return (
            "Not known yet: trainings from six checkpoints of one pre-training are in progress "
            f"(`python -m papers starts`; {there} of 360 are done)."
        )
    dev = {row["name"]: row["dev"] for row in recorded(results)}
    told = []
    for name, of in complete.items():
        slopes = spread([_slope(dev, of, seed) for seed in _common(of)])
        assert slopes is not None  # a seed is common
        low, high = slopes.interval
        interval = f" ({low:+.2f} to {high:+.2f})" if slopes.count > 1 else " (one seed)"
        told.append(f"{name} {slopes.mean:+.2f}{interval}")
    scores = sorted(dev.values())
    return (
        f"From six checkpoints of one pre-training (STS-B dev {scores[0]:.1f} to {scores[-1]:.1f}) "
        f"the gain of the exchange changes by, for each point of that score: {', '.join(told)}."
    )


def _common(of: Mapping[str, Mapping[int, float]]) -> list[int]:
    return sorted(set.intersection(*(set(by_seed) for by_seed in of.values())))


def _slope(dev: Mapping[str, float], of: Mapping[str, Mapping[int, float]], seed: int) -> float:
    x, y = [dev[start] for start in of], [by_seed[seed] for by_seed in of.values()]
    return float(np.polyfit(x, y, 1)[0])
