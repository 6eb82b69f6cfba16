"""Does successive halving over the three components find more than the audit's temperature?

An objective of three parts (`isotrope.paradigm.compose.Paradigm`) is trained in each combination of
three dissipations, three weights and three ratios, on the tasks of `benchmarks/tuning.py` that
begin with a raw encoder, in batches of 32 and with everything else as there. Halving trains all 27
for a third of the steps, continues the best nine, or three, by the dev score, and takes the one
that is best on dev at the end; what it would have done is read from the scores of the whole grid.
It is compared, on test, with InfoNCE at the temperature that the audit recommends and at the
default (docs/results/tuning.csv, the same seed).

    python benchmarks/components.py [--only WORD] [--seed N ...] [--data DIR] [--raw DIR] [--show]

A training takes about 10 seconds of one core. Rows that are in docs/results/components.csv are
kept.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import ledger
import tuning
from isotrope.core.views import Views
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.paradigm.compose import Paradigm
from isotrope.paradigm.objective import Objective
from tuning import BATCH, RAW, ROOT, Fixed, Row

CSV = ROOT / "docs" / "results" / "components.csv"
PARTS = ("dissipation", "weight", "ratio")
KEY = ("task", "encoder", "seed", *PARTS)
COLUMNS = (*KEY, "third", "dev", "score", "steps", "seconds", "torch")
GRID: dict[str, Sequence[str]] = {
    "dissipation": ("none", "margin:0.3", "fraction:0.05"),
    "weight": ("softmax:0.01", "softmax:0.02", "softmax:0.05"),
    "ratio": ("1", "1.5", "2"),
}
KEPT = (3, 9, 27)


class Composed(Fixed):
    """An objective of three parts, the same in every step."""

    def __init__(self, parts: Sequence[str]) -> None:
        super().__init__("temperature", 0.0)
        dissipation, weight, ratio = parts
        self.objective = Paradigm(dissipation=dissipation, weight=weight, ratio=ratio)

    def __call__(self, views: Views) -> Objective:
        """Return it."""
        return self.objective


def halved(rows: Sequence[Row], kept: int) -> Row:
    """Return the training that halving ends with: by dev, of those that led at a third."""
    led = sorted(rows, key=lambda row: -float(row["third"]))[:kept]
    return max(led, key=lambda row: float(row["dev"]))


def report(rows: Sequence[Row], singles: Sequence[Row]) -> list[str]:
    """Return a line for each task and seed that is whole, and the means.

    Args:
        rows: of this benchmark.
        singles: of benchmarks/tuning.py.
    """
    lines, gains = [], []
    names = ["InfoNCE at 0.05", "as recommended", *(f"the best {kept} at a third" for kept in KEPT)]
    for task, seed in dict.fromkeys((row["task"], row["seed"]) for row in rows):
        whole = [row for row in rows if (row["task"], row["seed"]) == (task, seed)]
        infonce = {
            row["way"]: row
            for row in singles
            if (row["task"], row["seed"], row["setting"]) == (task, seed, "temperature")
            and row["batch"] == str(BATCH)
        }
        if len(whole) < max(KEPT) or "recommended" not in infonce:
            continue
        ends = [infonce["0.05"], infonce[infonce["recommended"]["value"]]]
        ends += [halved(whole, kept) for kept in KEPT]
        gains.append([float(end["score"]) - float(ends[1]["score"]) for end in ends])
        best = max(whole, key=lambda row: float(row["score"]))
        shown = ", ".join(f"{name} {end['score']}" for name, end in zip(names, ends, strict=True))
        chosen = " ".join(ends[-2][part] for part in PARTS)
        lines.append(
            f"{task}, seed {seed}: {shown}; of nine {chosen}; best of all {best['score']} "
            f"({' '.join(best[part] for part in PARTS)})"
        )
    if gains:
        means = [statistics.mean(each) for each in zip(*gains, strict=True)]
        shown = ", ".join(f"{name} {mean:+.2f}" for name, mean in zip(names, means, strict=True))
        lines.append(f"mean of {len(gains)}, less as recommended: {shown}")
    return lines


def measure(task: tuning.Task, seed: int, rows: list[Row]) -> None:
    """Add what is missing of a task and a seed to the rows and to the file."""
    mark = SentenceEncoder.load(task.encoder, device="cpu").fingerprint()
    known = {tuple(row[name] for name in KEY) for row in rows}
    with tuning.prepared(task, seed) as (output, store):
        settings = tuning.settings_of(task, BATCH, seed, output)
        for parts in itertools.product(*GRID.values()):
            key = (task.name, mark, str(seed), *parts)
            if key in known:
                continue
            began = time.process_time()
            scores = tuning.train(task, settings, store, Composed(parts))
            took = round(time.process_time() - began)
            values = (*(f"{each:.2f}" for each in scores), task.steps, took, torch.__version__)
            rows.append(dict(zip(COLUMNS, (*key, *map(str, values)), strict=True)))
            print(", ".join(rows[-1].values()), flush=True)
            ledger.write(CSV, COLUMNS, rows)


def main() -> None:
    """Measure what is not in the CSV."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--seed", nargs="+", type=int, default=[0, 1], metavar="SEED")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--raw", type=Path, default=RAW, help="a raw encoder [papers/encoders]")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = ledger.read(CSV)
    if not options.show:
        for seed, task in itertools.product(options.seed, tuning.tasks(options.data, options.raw)):
            if options.only in task.name and task.encoder == str(options.raw):
                measure(task, seed, rows)
    print("\n".join(report(rows, ledger.read(tuning.CSV))))


if __name__ == "__main__":
    main()
