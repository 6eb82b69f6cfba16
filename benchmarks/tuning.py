"""Does the temperature that `isotrope audit` recommends score as high as the best of a grid?

InfoNCE is trained at each of the audit's seven temperatures, on pairs and single texts with three
kinds of encoder (trained on pairs, disturbed, raw), with everything else as it is; scored once,
after the last step, on texts that are in no training: MRR@10 of pairs, or the Spearman correlation
with people's scores, out of 100. The audit sees the same rows and the encoder before training. The
regret is the best mean score of the grid (over the seeds) less the mean score at the recommended
temperature; beside it stands the regret of the default, 0.05. The rule of
the audit was not changed after these numbers were known.

    python benchmarks/tuning.py [--only WORD] [--data DIR] [--raw DIR] [--csv FILE] [--show]
    python benchmarks/tuning.py --held-out [--raw DIR]

`--held-out` trains a raw encoder on docstrings of torch, scipy and scikit-learn, on which no choice
was made, with the default temperature and with `auto`, and compares the two by a paired bootstrap
over 800 held-out functions (docs/results/tuning-held-out.csv).

A training takes 10 to 40 seconds of one core. Rows that are in the CSV are kept: delete one to
measure it again. Seed by seed, so that all tasks are there first. `--show` prints the regrets of
what is there.
"""

import argparse
import csv
import gzip
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

import isotrope
from isotrope.core.files import atomic_replace
from isotrope.data.text.docstrings import STANDARD_LIBRARY, collect
from isotrope.diagnostics.audit.settings import GRID
from isotrope.training.settings import TrainSettings, read_yaml

ROOT = Path(__file__).resolve().parents[1]
CSV = ROOT / "docs" / "results" / "tuning.csv"
COLUMNS = ("task", "seed", "temperature", "score", "start", "steps", "seconds", "torch")
SEEDS, DEFAULT = (0, 1), 0.05
BATCH, TOKENS = 32, 24
RAW = "a raw encoder: the folder that `python -m papers encoder raw-2x128-pmi --seed 0` writes"
Pair = tuple[str, str]


@dataclass(frozen=True)
class Task:
    """What is trained, and what it is scored on.

    Attributes:
        name: in the CSV.
        encoder: to begin with.
        train: the pairs, or single texts whose views are two passes with dropout; by seed.
        test: what is held out: pairs to be retrieved (MRR@10), or pairs and a number (Spearman).
        steps: of BATCH rows.
        rate: peak learning rate.
    """

    name: str
    encoder: str
    train: Callable[[int], list[Pair] | list[str]]
    test: Sequence[tuple[Any, ...]]
    steps: int
    rate: float


def _tsv(file: Path) -> list[tuple[float, str, str]]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [(float(score), a, b) for score, a, b in (line.split("\t") for line in lines)]


def _alike(file: Path, least: float) -> Callable[[int], list[Pair]]:
    """The pairs of a file with at least that label, in the order of the seed."""
    pairs = [(a, b) for score, a, b in _tsv(file) if score >= least]

    def shuffled(seed: int) -> list[Pair]:
        return random.Random(seed).sample(pairs, len(pairs))

    return shuffled


def tasks(data: Path, raw: Path) -> list[Task]:
    """Return the tasks whose data are here."""
    functions = [(item.query, item.target) for item in collect((STANDARD_LIBRARY, "numpy"))]
    random.Random(0).shuffle(functions)
    held_out, rest = functions[:300], functions[300:]
    disturbed, stsb, sick = str(data / "standin-mlm"), data / "sts" / "stsb", data / "sts" / "sickr"
    mrpc = data / "transfer" / "mrpc"

    def sentences(seed: int) -> list[str]:
        with gzip.open(data / "corpus" / "wiki1m_for_simcse_head.txt.gz", "rt") as lines:
            kept = [line.strip() for line in lines if len(line.split()) >= 8]
        return random.Random(seed).sample(kept, 4_000)

    def docstrings(seed: int) -> list[Pair]:
        return random.Random(seed).sample(rest, len(rest))

    found = [Task("docstrings", "all-MiniLM-L6-v2", docstrings, held_out, 20, 1e-4)]
    if stsb.is_dir():
        scored = [(a, b, label) for label, a, b in _tsv(stsb / "test.tsv")][::3]
        related = [(a, b, label) for label, a, b in _tsv(sick / "test.tsv")][::7]
        repeated = [(a, b) for label, a, b in _tsv(mrpc / "test.tsv") if label == 1][:500]
        alike = {
            "STS-B": (_alike(stsb / "train.tsv", 4), scored),
            "SICK": (_alike(sick / "train.tsv", 4), related),
        }
        found.append(Task("wikipedia", disturbed, sentences, scored, 20, 1e-4))
        for name, (pairs, test) in alike.items():
            found.append(Task(f"{name} pairs", disturbed, pairs, test, 20, 1e-4))
        if raw.is_dir():
            found.append(Task("wikipedia, raw", str(raw), sentences, scored, 150, 3e-3))
            alike["MRPC"] = _alike(mrpc / "train.tsv", 1), repeated
            for name, (pairs, test) in alike.items():
                found.append(Task(f"{name} pairs, raw", str(raw), pairs, test, 100, 1e-3))
    return found


def score(task: Task, model: Any) -> float:
    """Return 100 times the score of a model on what no training has seen."""
    rows = [[" ".join(str(x).split()[:TOKENS]) for x in row] for row in task.test]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.tsv"
        if len(rows[0]) == 3:
            file.write_text("".join(f"{c}\t{a}\t{b}\n" for a, b, c in rows), encoding="utf-8")
            (value,) = isotrope.evaluate(model, sts=file, results=None).metrics.values()
            return float(cast("float", value))
        file.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
        found = isotrope.evaluate(model, retrieval=file, results=None).metrics
        return 100 * float(cast("float", found["mrr@10"]))


def fitted(task: Task, temperature: float | str, seed: int, output: Path) -> Any:
    """Return what comes of a training."""
    return isotrope.fit(
        task.train(seed),
        output=output,
        encoder=task.encoder,
        objective="infonce",
        objective_settings={"temperature": temperature},
        batch_size=BATCH,
        max_steps=task.steps,
        learning_rate=task.rate,
        max_length=TOKENS,
        head="none",
        seed=seed,
        device="cpu",
        progress=False,
    )


def train(task: Task, temperature: float, seed: int) -> float:
    """Return the score after a training."""
    with tempfile.TemporaryDirectory() as folder:
        return score(task, fitted(task, temperature, seed, Path(folder) / "run"))


def held_out(raw: Path, seed: int) -> dict[str, object]:
    """Return what `auto` gains over the default where no choice was made."""
    items = collect(("torch", "scipy", "sklearn"))
    pairs = [(item.query, item.target) for item in items]
    random.Random(0).shuffle(pairs)
    test = [tuple(" ".join(text.split()[:TOKENS]) for text in pair) for pair in pairs[:800]]
    task = Task("held out", str(raw), lambda _: pairs[800:], test, 150, 3e-3)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.tsv"
        file.write_text("".join(f"{a}\t{b}\n" for a, b in test), encoding="utf-8")
        runs = [fitted(task, value, seed, Path(folder) / str(value)) for value in (DEFAULT, "auto")]
        found = isotrope.compare([run.output for run in runs], retrieval=file, results=None)
        own = TrainSettings.read(read_yaml(runs[1].output / "config.yaml"))
    (column,) = (c for name, c in found.details["columns"].items() if name.endswith("mrr@10"))
    (difference,) = column["differences"]
    scores = dict(zip(("default", "auto"), (m["value"] for m in column["models"]), strict=True))
    numbers = {**scores, **{key: difference[key] for key in ("value", "low", "high")}}
    return {
        "seed": seed,
        "temperature": own.objective_settings["temperature"],
        **{key: f"{100 * value:.2f}" for key, value in numbers.items()},
        "rows": len(pairs) - 800,
        "torch": torch.__version__,
    }


def recommended(task: Task, seed: int) -> float:
    """Return the temperature that the audit recommends."""
    audit = isotrope.audit(
        task.train(seed)[:2_000],
        encoder=task.encoder,
        objective="infonce",
        batch_size=BATCH,
        max_length=TOKENS,
        dev=None,
        seed=seed,
    )
    return float(audit.recommended["temperature"])


def regrets(rows: list[dict[str, str]]) -> list[str]:
    """Return a line for each task that is whole in at least one seed, and one with the means."""
    lines, both = [], []
    for task in dict.fromkeys(row["task"] for row in rows):
        means: dict[float, float] = {}
        chosen = []
        seeds = [
            s
            for s in map(str, SEEDS)
            if sum(r["task"] == task and r["seed"] == s for r in rows) > len(GRID["temperature"])
        ]
        for temperature in GRID["temperature"] if seeds else ():
            means[temperature] = statistics.mean(
                float(r["score"])
                for r in rows
                if r["task"] == task and r["seed"] in seeds and r["temperature"] == str(temperature)
            )
        for row in rows:
            audited = row["temperature"].startswith("audit")
            if row["task"] == task and row["seed"] in seeds and audited:
                chosen.append(float(row["temperature"].removeprefix("audit: ")))
        if not means or not chosen:
            continue
        best = max(means, key=means.__getitem__)
        own = statistics.mean(means[t] for t in chosen)
        both.append((means[best] - own, means[best] - means[DEFAULT]))
        lines.append(
            f"{task}: best {means[best]:.2f} at {best}; recommended "
            f"{', '.join(map(str, dict.fromkeys(chosen)))}, regret {means[best] - own:.2f}; "
            f"default regret {means[best] - means[DEFAULT]:.2f} ({len(seeds)} seeds)"
        )
    if both:
        own, usual = (statistics.mean(each) for each in zip(*both, strict=True))
        lines.append(f"mean of {len(both)}: recommended, regret {own:.2f}; default {usual:.2f}")
    return lines


def main() -> None:
    """Measure what is not in the CSV."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--raw", type=Path, default=Path("raw"), help=RAW)
    parser.add_argument("--csv", type=Path, default=CSV)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.held_out:
        found = [held_out(options.raw, seed) for seed in SEEDS]
        with CSV.with_name("tuning-held-out.csv").open("w", newline="") as handle:
            writer = csv.DictWriter(handle, list(found[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
        print(*found, sep="\n")
        return
    rows: list[dict[str, str]] = []
    if options.csv.exists():
        rows = list(csv.DictReader(options.csv.read_text(encoding="utf-8").splitlines()))
    if not options.show:
        for seed, task in itertools.product(SEEDS, tasks(options.data, options.raw)):
            if options.only in task.name:
                measure(task, seed, rows, options.csv)
    print("\n".join(regrets(rows)))


def measure(task: Task, seed: int, rows: list[dict[str, str]], file: Path) -> None:
    """Add what is missing of a task and a seed to the rows and to the file."""

    def add(temperature: str, value: float | str, seconds: float) -> None:
        row = (
            task.name,
            seed,
            temperature,
            value,
            start,
            task.steps,
            round(seconds),
            torch.__version__,
        )
        rows.append(dict(zip(COLUMNS, map(str, row), strict=True)))
        print(", ".join(f"{k} {v}" for k, v in rows[-1].items() if v), flush=True)
        with atomic_replace(file) as temporary, temporary.open("w", newline="") as handle:
            writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    there = [r for r in rows if (r["task"], r["seed"]) == (task.name, str(seed))]
    known = {r["temperature"] for r in there}
    start = there[0]["start"] if there else round(score(task, isotrope.load(task.encoder)), 2)
    if not any(name.startswith("audit") for name in known):
        began = time.process_time()
        add(f"audit: {recommended(task, seed)}", "", time.process_time() - began)
    for temperature in GRID["temperature"]:
        if str(temperature) not in known:
            began = time.process_time()
            add(
                str(temperature),
                round(train(task, temperature, seed), 2),
                time.process_time() - began,
            )


if __name__ == "__main__":
    main()
