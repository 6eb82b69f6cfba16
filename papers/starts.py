"""``python -m papers starts``: what an exchange gains, by how good the encoder is before training.

All verdicts on text rest on encoders that differ in their start. This varies the start alone: six
checkpoints of each of five pre-trainings (:data:`PRETRAINING`, seeds :data:`SEEDS`). It was written
down before any of its trainings that are judged.

- Candidates are the checkpoints every 50 steps from step 150 to the end. Six are taken by their
  score on STS-B dev alone: the lowest, the highest, and those nearest to four values at equal
  distances in between.
- Losses: the four pairs of :data:`PAIRS`, InfoNCE and MET, with the hyperparameters that were
  chosen on ``raw-2x128-pmi``. The rate of each loss is the best of :data:`RATES` (250 steps,
  seed 0, by STS-B dev) at the second lowest and at the second highest start of the first
  pre-training; each other start takes that of the nearer of these two.
- Trainings: 500 steps, STS at the best step on dev, as everything else of ``python -m papers
  text``. The trainings from one pre-training have its seed. So an interval over seeds covers
  pre-training and training, and the slope does not rest on one pre-training.
- Result: modified less original, by start, with Student's 90% interval over the seeds; and the
  slope of that gain against the start's dev score, one slope a seed, with its interval.

Step of the pre-training and mean cosine of the starts differ along with the score: the curve does
not tell these apart. Rounding differs between kinds of processors, so a pre-training that was begun
on one kind is completed on that kind.
"""

import argparse
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isotrope.core import InputError, atomic_replace, exclusive_lock, write_text
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
PRETRAINING, SEEDS = RAW, protocol.SEEDS
FIRST, EVERY, COUNT = 150, 50, 6
RATES = (3e-4, 1e-3, 3e-3)
PAIRS = {f"modified{name}": name for name in ("mhe", "mhs", "barlowtwins", "vicreg")}
LOSSES = (*(name for pair in PAIRS.items() for name in pair), "infonce", "met")

Start = Mapping[str, Any]
"""A row of starts.json: name, step, dev, mean cosine, fingerprint."""

Starts = Mapping[int, Sequence[Start]]
"""Six starts by the seed of their pre-training, the lowest score first."""


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


def rates(starts: Starts, raw_results: protocol.Find) -> dict[tuple[str, str], list[Any]]:
    """Return the trainings that choose rates, each beside its rate, by loss and start."""
    first = starts[SEEDS[0]]
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
        for start in (first[1], first[-2])
    }


def finals(
    starts: Starts, find: protocol.Find, raw_results: protocol.Find
) -> dict[tuple[str, int], list[PaperJob]]:
    """Return what is judged, by loss and seed, a training a start; none of what has no rate yet."""
    jobs: dict[tuple[str, int], list[PaperJob]] = {}
    trials = rates(starts, raw_results) if starts else {}
    at = {tuned: protocol.best(of, find) for tuned, of in trials.items()}
    for name, (seed, six) in itertools.product(LOSSES, starts.items()):
        low, high = starts[SEEDS[0]][1], starts[SEEDS[0]][-2]
        if at[name, low["name"]] is None or at[name, high["name"]] is None:
            continue
        loss, values = protocol.LOSSES[name], _values(name, raw_results)
        for start in six:
            near = min((low, high), key=lambda tuned: abs(tuned["dev"] - start["dev"]))
            job = protocol.final(start["name"], loss, values, at[name, near["name"]], seed)
            jobs.setdefault((name, seed), []).append(job)
    return jobs


def _made(seed: int, data: Path, results: Path) -> list[Start] | None:
    """The six starts of a pre-training, made or found; None if others than those of the results."""
    folder = cache_folder() / "encoders"
    part = folder / f"{PRETRAINING}-starts{seed}.part"
    known = recorded(results)
    starts = list(known.get(seed, ()))
    if not starts or not all((folder / start["name"]).is_dir() for start in starts):
        _pretrain(seed, data, part)
        measured = json.loads((part / "course.json").read_text(encoding="utf-8"))
        for row in measured:
            name = f"{PRETRAINING}-start{seed}-step{row['step']}"
            if not (folder / name).is_dir():
                raw.rounded(part / f"step-{row['step']}")
                (part / f"step-{row['step']}").rename(folder / name)
            row |= {"name": name, "fingerprint": _fingerprint(folder / name)}
        if not starts:
            starts = chosen(measured)
            results.mkdir(parents=True, exist_ok=True)
            text = json.dumps({**known, seed: starts}, indent=1)
            write_text(results / "starts.json", f"{text}\n")
    if all(_fingerprint(folder / start["name"]) == start["fingerprint"] for start in starts):
        return starts
    stages.say(
        f"left out: pre-training {seed} gives other encoders here than those in starts.json, as "
        "this is another kind of processor"
    )
    return None


def _fingerprint(folder: Path) -> str:
    return SentenceEncoder.load(folder, pooling="cls", device="cpu").fingerprint()


def _pretrain(seed: int, data: Path, part: Path) -> None:
    """Pre-train, and measure every checkpoint that is a candidate."""
    if (part / "course.json").is_file():
        return
    dev = load_sts_file(data / "sts/stsb/dev.tsv")
    corpus, first = data / raw.CORPUS, raw.LINES[0]
    reference = raw.corpus_lines(corpus, first - raw.REFERENCE, first)
    recipe = replace(raw.RECIPES[PRETRAINING], every=EVERY)
    with exclusive_lock(part, "making starts"):
        encoder, tokens = initialized(recipe, raw.corpus_lines(corpus, *raw.LINES), part, seed)
        summary = pretrain(
            recipe,
            encoder,
            tokens,
            part,
            seed=seed,
            measure=lambda trained: raw.measured(CachedEncoder(trained), dev, reference),
            accept=lambda measures: False,
            tell=stages.say,
        )
        course = [row for row in summary["course"] if row["step"] >= FIRST]
        for row in course:
            row["step"] = int(row["step"])
        write_text(part / "course.json", json.dumps(course))


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
    """Train what is missing of one pre-training after the other, as far as time is."""
    raw_results = stored(RAW, stages.RESULTS / "text")
    store, begun = JobStore(options.output / "cells"), time.monotonic()

    def train(what: str, jobs: Sequence[PaperJob]) -> bool:
        stages.say(f"{what}: {len(jobs)} trainings")
        left = options.minutes and options.minutes - (time.monotonic() - begun) / 60
        return stages.train(jobs, store, options.data, minutes=left, processes=options.jobs)

    def wanted(seed: int) -> list[PaperJob]:
        jobs = finals(recorded(options.output), store.find, raw_results)
        return [job for name in LOSSES for job in jobs.get((name, seed), ())]

    for seed in SEEDS:
        there = len(list(filter(store.find, wanted(seed))))
        if there == COUNT * len(LOSSES) or not _made(seed, options.data, options.output):
            continue
        trials = rates(recorded(options.output), raw_results).values()
        if not (
            train("rates", [job for of in trials for _, job in of])
            and train(f"pre-training {seed}", wanted(seed))
        ):
            return


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    description = "Train the pairs of Li et al.'s table 3 from six checkpoints."
    parser = stages.parser("starts", description, "starts")
    add = parser.add_argument
    add("--jobs", type=int, default=1, metavar="N", help="jobs at a time [1]")
    add("--minutes", type=float, metavar="M", help="start no training after so many")
    add("--show", action="store_true", help="run nothing: the page by what there is")
    return parser.parse_args(list(arguments))


def recorded(results: Path = RESULTS) -> dict[int, list[Start]]:
    """Return six starts a seed, the lowest score first; nothing before they are made."""
    record = results / "starts.json"
    if not record.is_file():
        return {}
    return {int(seed): six for seed, six in json.loads(record.read_text(encoding="utf-8")).items()}


def gains(results: Path = RESULTS) -> dict[str, dict[int, list[float]]]:
    """Return modified less original in STS, by pair and seed, a number a start.

    Seeds are left out for pairs that were not trained from all six starts.
    """
    starts, store = recorded(results), JobStore(results / "cells")
    jobs = finals(starts, store.find, stored(RAW, stages.RESULTS / "text"))
    of = {what: [protocol.scores([job], store.find) for job in of] for what, of in jobs.items()}
    paired: dict[str, dict[int, list[float]]] = {}
    for (modified, original), seed in itertools.product(PAIRS.items(), starts):
        both = list(zip(of.get((modified, seed), ()), of.get((original, seed), ()), strict=True))
        if both and all(seed in after and seed in before for after, before in both):
            paired.setdefault(original, {})[seed] = [a[seed] - b[seed] for a, b in both]
    return paired


def page(results: Path = RESULTS) -> tuple[str, Picture] | None:
    """Return the gains by start as a table in Markdown, and their picture; None before the starts.

    A gain has Student's 90% interval over the seeds that are there.
    """
    starts, paired = recorded(results), gains(results)
    if not starts:
        return None
    dev = {seed: [row["dev"] for row in six] for seed, six in starts.items()}
    ends = [sorted({min(of), max(of)}) for of in zip(*dev.values(), strict=True)]
    lines, panels = [["loss", *(f"dev {' to '.join(f'{e:.1f}' for e in of)}" for of in ends)]], []
    for name in PAIRS.values():
        of = paired.get(name, {})
        of_start = zip(*of.values(), strict=True) if of else [()] * COUNT
        lines.append([name, *(with_interval(spread(gain)) for gain in of_start)])
        series = [Series(f"pre-training {seed}", dev[seed], gain) for seed, gain in of.items()]
        panels.append(Chart(name, series, x="STS-B dev of the start", y="STS", marks={"0": 0.0}))
    text = [
        "# What exchanging the components gains, by the start",
        "",
        "Written by `python -m papers starts`, whose module says how it was decided beforehand.",
        sentence(results),
        "",
        *table(lines[0], lines[1:]),
        "",
        "![Gains by the start's score, a line a pre-training](gains.svg)",
    ]
    return "\n".join(text) + "\n", charts(panels, columns=2)


def sentence(results: Path = RESULTS) -> str:
    """Say what the gains do with the start's score, or how far the trainings are."""
    starts, paired = recorded(results), gains(results)
    there = len(JobStore(results / "cells").seconds.get("text", []))
    if not paired:
        return f"Not known yet: `python -m papers starts` has {there} of its 360 trainings."
    dev = {seed: [row["dev"] for row in six] for seed, six in starts.items()}
    told, flat = [], True
    for name, by_seed in paired.items():
        slopes = spread([float(np.polyfit(dev[seed], of, 1)[0]) for seed, of in by_seed.items()])
        told.append(f"{name} {with_interval(slopes)}, n={len(by_seed)}")
        flat &= slopes is None or slopes.interval[0] <= 0 <= slopes.interval[1]
    scores = [score for of in dev.values() for score in of]
    unfinished = "" if there >= 360 else f"; {there} of 360 trainings are done"
    return (
        f"Our checkpoints score {min(scores):.1f} to {max(scores):.1f} on STS-B dev. The gain from "
        f"replacing GD, W and R {'does not ' if flat else ''}measurably depend{'s'[flat:]} "
        f"on it. Per point: {'; '.join(told)} (means over n pretrainings{unfinished})."
    )
