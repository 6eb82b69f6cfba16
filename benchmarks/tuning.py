"""Which way to a temperature scores highest: a default, the audit, a thermostat, a search?

InfoNCE is trained at each of the audit's seven temperatures, with three kinds of encoder (trained
on pairs, disturbed, raw), at batch sizes from 16 to 128, with everything else as `isotrope.fit` has
it: the same batches, dropout masks and rates. All batch sizes see the same number of rows, and the
rate grows with the root of the batch. Beside the seven stand

- what `isotrope audit` recommends for the same rows, encoder and batch size: one of the seven;
- two thermostats. In every step the temperature is found at which the hardest negative has 55% of
  the push of that batch, or at which the mean GD is 0.5; the
  logarithm of the temperature of the training is a mean of these over about ten steps;
- a search: all seven, or a third of the steps of all seven and the rest of the best two or three,
  chosen on dev.

MPT is trained likewise at the audit's seven margins, and with a thermostat that holds GD at 0.7.

Scores are MRR@10 of pairs, or the Spearman correlation with people's scores, out of 100, on texts
that are in no training. The regret is the best mean score of the seven (over the seeds) less that
of a way. The levels of the thermostats were set before, and not changed after. The audit's rule was
chosen on trainings in batches of 32 and tested on later ones (docs/LOG.md).

    python benchmarks/tuning.py [--only WORD] [--setting NAME ...] [--batch N ...] [--seed N ...]
                                [--data DIR] [--raw DIR] [--csv FILE]
    python benchmarks/tuning.py --show
    python benchmarks/tuning.py --held-out [--raw DIR]

`--held-out` trains a raw encoder on docstrings of torch, scipy and scikit-learn, on which no choice
was made, with the default temperature and with `auto`, and compares the two by a paired bootstrap
over 800 held-out functions (docs/results/tuning-held-out.csv).

A training takes 5 to 40 seconds of one core. Rows that are in the CSV are kept: delete one to
measure it again. A raw encoder that is made anew is not the same to the last bit, so a task whose
rows are of another encoder is refused. `--show` prints the regrets of what is there.
"""

import argparse
import gzip
import itertools
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn

import isotrope
import ledger
from corpus import STANDARD_LIBRARY, collect, fields
from isotrope.adapters.sentence_transformers.losses import embed_sorted
from isotrope.core.documents import read_yaml
from isotrope.core.run_folder import RunFolder
from isotrope.core.views import Views
from isotrope.data.sources import read, write_records
from isotrope.data.text.batches import Batch, DatasetMixture
from isotrope.data.text.tokens import TokenStore
from isotrope.diagnostics.audit.rows import embed_rows, pair_rows
from isotrope.diagnostics.audit.settings import GRID, recommend, settings_table
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.objectives.infonce import InfoNCE
from isotrope.objectives.triplet import MPT
from isotrope.paradigm.anatomy import anatomy
from isotrope.paradigm.objective import Objective
from isotrope.training.optimisers import step_seed
from isotrope.training.settings import TrainSettings
from isotrope.training.text import module_of, plan_of
from isotrope.training.text_data import batch_at, store_of
from isotrope.training.text_encoder import encoder_of
from isotrope.training.text_module import TextModule

ROOT = Path(__file__).resolve().parents[1]
CSV = ROOT / "docs" / "results" / "tuning.csv"
COLUMNS = (
    *("task", "encoder", "seed", "batch", "setting", "way", "value"),
    *("third", "dev", "score", "steps", "seconds", "torch"),
)
SEEDS, DEFAULT = (0, 1, 2), {"temperature": 0.05, "margin": 0.23}
SHARE = 0.55  # of the push on the hardest negative, that a thermostat holds
BELOW = 0.007  # under the least temperature of the seven: what a thermostat finds at times
BATCH, BATCHES, TOKENS = 32, (16, 32, 64, 128), 24
OBJECTIVES: Mapping[str, Any] = {"temperature": InfoNCE(), "margin": MPT()}
RAW = ROOT / "papers" / "encoders" / "raw-2x128-pmi"
Pair = tuple[str, str]
Row = dict[str, str]


@dataclass(frozen=True)
class Task:
    """What is trained, and what it is scored on.

    Attributes:
        name: in the CSV.
        encoder: to begin with.
        train: the pairs, or single texts whose views are two passes with dropout; by seed.
        dev: what a search chooses by: pairs to be retrieved (MRR@10), or pairs and a number
            (Spearman).
        test: likewise, for the score.
        steps: of BATCH rows.
        rate: peak learning rate, with BATCH rows.
    """

    name: str
    encoder: str
    train: Callable[[int], list[Pair] | list[str]]
    dev: Sequence[tuple[Any, ...]]
    test: Sequence[tuple[Any, ...]]
    steps: int
    rate: float


def _tsv(file: Path) -> list[tuple[float, str, str]]:
    return [(float(score), a, b) for score, a, b in fields(file)]


def _scored(file: Path, every: int) -> list[tuple[str, str, float]]:
    return [(a, b, label) for label, a, b in _tsv(file)][::every]


def _shuffled(rows: list[Any]) -> Callable[[int], list[Any]]:
    return lambda seed: random.Random(seed).sample(rows, len(rows))


def tasks(data: Path, raw: Path) -> list[Task]:
    """Return the tasks whose data are here."""
    functions = [(item.query, item.target) for item in collect((STANDARD_LIBRARY, "numpy"))]
    random.Random(0).shuffle(functions)
    test, dev, rest = functions[:300], functions[300:500], functions[500:]
    disturbed, stsb, sick = str(data / "standin-mlm"), data / "sts" / "stsb", data / "sts" / "sickr"
    mrpc = data / "transfer" / "mrpc"

    def sentences(seed: int) -> list[str]:
        with gzip.open(data / "corpus" / "wiki1m_for_simcse_head.txt.gz", "rt") as lines:
            kept = [line.strip() for line in lines if len(line.split()) >= 8]
        return random.Random(seed).sample(kept, 4_000)

    found = [Task("docstrings", "all-MiniLM-L6-v2", _shuffled(rest), dev, test, 20, 1e-4)]
    if stsb.is_dir():
        scored = _scored(stsb / "dev.tsv", 3), _scored(stsb / "test.tsv", 3)
        related = _scored(sick / "dev.tsv", 1), _scored(sick / "test.tsv", 7)
        repeated = [(a, b) for label, a, b in _tsv(mrpc / "train.tsv") if label == 1]
        repeated_test = [(a, b) for label, a, b in _tsv(mrpc / "test.tsv") if label == 1][:500]
        alike = {
            name: [(a, b) for label, a, b in _tsv(folder / "train.tsv") if label >= 4]
            for name, folder in (("STS-B", stsb), ("SICK", sick))
        }
        found.append(Task("wikipedia", disturbed, sentences, *scored, 20, 1e-4))
        if raw.is_dir():
            own = str(raw)
            found += [
                Task("STS-B pairs, raw", own, _shuffled(alike["STS-B"]), *scored, 100, 1e-3),
                Task("SICK pairs, raw", own, _shuffled(alike["SICK"]), *related, 100, 1e-3),
                Task(
                    "MRPC pairs, raw",
                    own,
                    _shuffled(repeated[300:]),
                    repeated[:300],
                    repeated_test,
                    100,
                    1e-3,
                ),
                Task("wikipedia, raw", own, sentences, *scored, 100, 1e-3),
            ]
    if raw.is_dir():
        others = _other_docstrings()
        splits = others[800:1000], others[:800]
        found.append(
            Task("other docstrings, raw", str(raw), _shuffled(others[1000:]), *splits, 150, 3e-3)
        )
    return found


def _other_docstrings() -> list[Pair]:
    """Functions of packages that the task `docstrings` has none of."""
    pairs = [(item.query, item.target) for item in collect(("torch", "scipy", "sklearn"))]
    random.Random(0).shuffle(pairs)
    return pairs


def score(encoder: SentenceEncoder, rows: Sequence[tuple[Any, ...]]) -> float:
    """Return MRR@10 of pairs, or Spearman's correlation with the third column, out of 100."""
    left, right = (
        torch.from_numpy(
            encoder.encode([" ".join(row[i].split()[:TOKENS]) for row in rows], normalize=True)
        )
        for i in (0, 1)
    )
    if len(rows[0]) == 3:
        labels = [row[2] for row in rows]
        return 100 * float(spearmanr((left * right).sum(1), labels).statistic)
    similar = left @ right.T
    rank = (similar > similar.diagonal()[:, None]).sum(1) + 1
    return 100 * float(torch.where(rank <= 10, 1 / rank, 0.0).mean())


class Fixed:
    """An objective with one value of a setting, in every step."""

    def __init__(self, setting: str, value: float) -> None:
        self.setting, self.value = setting, value

    def __call__(self, views: Views) -> Objective:
        """Return the objective of a step."""
        changed: Objective = replace(OBJECTIVES[self.setting], **{self.setting: self.value})
        return changed


class Thermostat(Fixed):
    """An objective whose setting follows that with which a quantity is at a level.

    Args:
        setting: that is moved.
        quantity: of :func:`isotrope.paradigm.anatomy.anatomy`.
        level: it is held there.
        rises: whether the quantity rises with the setting.
    """

    SLOW, LEAST, MOST = 0.9, 0.005, 1.0

    def __init__(self, setting: str, quantity: str, level: float, *, rises: bool) -> None:
        super().__init__(setting, 0.0)
        self.quantity, self.level, self.rises = quantity, level, rises

    def __call__(self, views: Views) -> Objective:
        """Return the objective of a step, after a look at its batch."""
        wanted = self._wanted(views.detached())
        old = self.value or wanted
        self.value = old**self.SLOW * wanted ** (1 - self.SLOW)
        return super().__call__(views)

    def _wanted(self, views: Views) -> float:
        """Return the value with which this batch is at the level, by bisection."""
        low, high = math.log(self.LEAST), math.log(self.MOST)
        for _ in range(10):
            middle = (low + high) / 2
            tried = Fixed(self.setting, math.exp(middle))(views)
            found = anatomy(tried, views)[self.quantity]
            # no anchor is active: only a larger temperature can change that
            small = found is None or (found < self.level) == self.rises
            low, high = (middle, high) if small else (low, middle)
        return math.exp((low + high) / 2)


def ways(setting: str, *, thermostats: bool) -> dict[str, Callable[[], Fixed]]:
    """Return what is trained, by name."""
    found = {f"{v:g}": (lambda v=v: Fixed(setting, v)) for v in GRID[setting]}
    if setting == "margin":
        found["default"] = lambda: Fixed(setting, DEFAULT[setting])
        if thermostats:
            found["hold GD"] = lambda: Thermostat(setting, "dissipation", 0.7, rises=True)
    elif thermostats:
        found |= {
            f"{BELOW:g}": lambda: Fixed(setting, BELOW),
            "hold share": lambda: Thermostat(setting, "hardest_share", SHARE, rises=False),
            "hold GD": lambda: Thermostat(setting, "dissipation", 0.5, rises=True),
        }
    return found


def settings_of(task: Task, batch: int, seed: int, output: Path) -> TrainSettings:
    """Return the settings of a training."""
    options = {
        "files": [str(output / "rows.jsonl")],
        "output": str(output),
        "encoder": task.encoder,
        "objective": "infonce",
        "batch_size": batch,
        "max_steps": task.steps * BATCH // batch,
        "learning_rate": task.rate * math.sqrt(batch / BATCH),
        "max_length": TOKENS,
        "head": "none",
        "seed": seed,
        "device": "cpu",
        "progress": False,
    }
    return TrainSettings.read(options)


def _views(module: TextModule, batch: Batch) -> Views:
    """Return a batch as the objective's input, with its graph."""
    columns = [
        {k: torch.from_numpy(v).to(module.encoder.device) for k, v in column._asdict().items()}
        for column in batch.columns
    ]
    anchors, positives, *hard = embed_sorted(module.model, columns)
    groups = torch.from_numpy(np.ascontiguousarray(batch.groups)).to(module.encoder.device)
    return Views(anchors, positives, hard[0] if hard else None, groups=groups)


def train(
    task: Task, settings: TrainSettings, store: TokenStore, way: Fixed
) -> tuple[float, float, float]:
    """Return the scores on dev after a third of the steps and at the end, and on test."""
    encoder = encoder_of(settings)
    batches = DatasetMixture({"": store}, settings.batch_size, settings.sampling, settings.seed)
    plan = plan_of(settings, batches.steps_per_epoch)
    module = module_of(settings, encoder, {"": OBJECTIVES[way.setting]}, plan).train()
    optimizer = module.optimizer()
    third = math.nan
    for step in range(plan.steps):
        torch.manual_seed(step_seed(settings.seed, step))
        for group in optimizer.param_groups:
            group["lr"] = module.learning_rate_at(step)
        views = _views(module, batch_at(settings, encoder, batches, step))
        loss = way(views).loss(views)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), settings.clip)
        optimizer.step()
        if step + 1 == round(plan.steps / 3):
            third = score(encoder, task.dev)
    return third, score(encoder, task.dev), score(encoder, task.test)


@contextmanager
def prepared(task: Task, seed: int) -> Iterator[tuple[Path, TokenStore]]:
    """Yield a folder with the rows of a task, and their tokens."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        write_records(task.train(seed), [], output / "rows.jsonl")
        settings = settings_of(task, BATCH, seed, output)
        records = read([output / "rows.jsonl"])
        yield output, store_of(settings, encoder_of(settings), output / "tokens", records)


def recommended(task: Task, setting: str, seed: int, output: Path) -> dict[int, float]:
    """Return what the audit recommends, by batch size."""
    records = read([output / "rows.jsonl"])
    rows = pair_rows(records, name="rows", most=2048, seed=seed)
    encoder = SentenceEncoder.load(task.encoder, device="cpu")
    embedded = embed_rows(encoder, rows, max_length=TOKENS, seed=seed)
    found = {}
    for batch in BATCHES:
        table = settings_table(embedded, OBJECTIVES[setting], batch_size=batch, seed=seed)
        (found[batch],) = (each.value for each in recommend(table) if each.name == setting)
    return found


def fitted(task: Task, temperature: float | str, seed: int, output: Path) -> Any:
    """Return what comes of a training by `isotrope.fit`."""
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


def held_out(raw: Path, seed: int) -> dict[str, object]:
    """Return what `auto` gains over the default where no choice was made."""
    pairs = _other_docstrings()
    test = [tuple(" ".join(text.split()[:TOKENS]) for text in pair) for pair in pairs[:800]]
    task = Task("held out", str(raw), lambda _: pairs[800:], (), test, 150, 3e-3)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.tsv"
        file.write_text("".join(f"{a}\t{b}\n" for a, b in test), encoding="utf-8")
        runs = [
            fitted(task, value, seed, Path(folder) / str(value))
            for value in (DEFAULT["temperature"], "auto")
        ]
        found = isotrope.compare([run.output for run in runs], retrieval=file, results=None)
        own = TrainSettings.read(read_yaml(RunFolder(runs[1].output).config))
    (column,) = (c for name, c in found.details["columns"].items() if name.endswith("mrr@10"))
    (difference,) = column["differences"]
    scores = dict(zip(("default", "auto"), (m["value"] for m in column["models"]), strict=True))
    numbers = {**scores, **{key: difference[key] for key in ("value", "low", "high")}}
    return {
        "seed": seed,
        "temperature": own.objective_settings["temperature"],
        **{key: f"{100 * value:.2f}" for key, value in numbers.items()},
        "rows": len(pairs) - 800,
        "encoder": SentenceEncoder.load(raw, device="cpu").fingerprint(),
        "torch": torch.__version__,
    }


def picked(own: dict[str, Row], setting: str) -> dict[str, tuple[Row, float]]:
    """Return the training that each way ends with, and the trainings that the way takes.

    Args:
        own: the rows of a task, a seed, a batch size and a setting, by way.
        setting: of the objective.
    """
    seven = [own[f"{value:g}"] for value in GRID[setting]]
    default = "default" if "default" in own else f"{DEFAULT[setting]:g}"
    known = {*(row["way"] for row in seven), "recommended", "default"}
    found = {
        "default": (own[default], 1.0),
        "recommended": (own[own["recommended"]["value"]], 1.0),
        **{name: (row, 1.0) for name, row in own.items() if name not in known},
    }
    if not all(row["third"] for row in seven):  # measured without a dev set
        return found
    by_third = sorted(seven, key=lambda row: -float(row["third"]))
    for kept in (2, 3, 7):
        best = max(by_third[:kept], key=lambda row: float(row["dev"]))
        name = "all seven, on dev" if kept == 7 else f"the best {kept} at a third"
        found[name] = best, 7 / 3 + kept * 2 / 3
    return found


@dataclass(frozen=True)
class Measured:
    """The scores of every way in a task at a batch size, by seed.

    Attributes:
        best: the best mean of the seven.
        at: the value that has it.
        seeds: that are whole.
        scores: by way, one for each seed.
        costs: in trainings, by way.
    """

    best: float
    at: str
    seeds: list[str]
    scores: dict[str, list[float]]
    costs: dict[str, float]

    def regret(self, way: str) -> float:
        """Return how far the mean score of a way is below the best of the seven."""
        return self.best - statistics.mean(self.scores[way])


def measured(rows: Sequence[Row], setting: str) -> dict[tuple[str, int], Measured]:
    """Return what is there, by task and batch size, of the seeds that are whole."""
    groups: dict[tuple[str, int], dict[str, dict[str, Row]]] = {}
    for row in rows:
        if row["setting"] == setting:
            key = row["task"], int(row["batch"])
            groups.setdefault(key, {}).setdefault(row["seed"], {})[row["way"]] = row
    found = {}
    for key, seeds in groups.items():
        needed = {*(f"{v:g}" for v in GRID[setting]), "recommended"}
        complete = [seed for seed, own in seeds.items() if needed <= {*own}]
        if not complete:
            continue
        whole = [seeds[seed] for seed in complete]
        means = {
            f"{v:g}": statistics.mean(float(own[f"{v:g}"]["score"]) for own in whole)
            for v in GRID[setting]
        }
        at = max(means, key=means.__getitem__)
        ends = [picked(own, setting) for own in whole]
        every = [way for way in ends[0] if all(way in end for end in ends)]
        scores = {w: [float(end[w][0]["score"]) for end in ends] for w in every}
        costs = {way: ends[0][way][1] for way in every}
        found[key] = Measured(means[at], at, complete, scores, costs)
    return found


def report(rows: Sequence[Row], setting: str) -> list[str]:
    """Return the regrets at each batch size, gains on the recommendation, and spreads."""
    found = measured(rows, setting)
    lines = []
    for batch in sorted({batch for _, batch in found}):
        here = {task: each for (task, size), each in found.items() if size == batch}
        costs = {way: cost for each in here.values() for way, cost in each.costs.items()}
        shown = ", ".join(f"{way} ({cost:.1f})" for way, cost in costs.items())
        lines.append(f"{setting}, batch size {batch}: regret (cost in trainings) of {shown}")
        for task, each in here.items():
            regrets = " ".join(f"{each.regret(w):.2f}" if w in each.costs else "-" for w in costs)
            seeds = ", ".join(each.seeds)
            lines.append(f"  {task}: best {each.best:.2f} at {each.at}; {regrets} (seeds {seeds})")
        own = {way: [e.regret(way) for e in here.values() if way in e.costs] for way in costs}
        means = " ".join(f"{statistics.mean(each):.2f} ({len(each)})" for each in own.values())
        lines.append(f"  mean (of how many tasks): {means}")
    for way in dict.fromkeys(way for each in found.values() for way in each.costs):
        gains = [
            own - other
            for each in found.values()
            if way in each.scores
            for own, other in zip(each.scores[way], each.scores["recommended"], strict=True)
        ]
        lines.append(
            f"{setting}: {way} less recommended {statistics.mean(gains):+.2f}, "
            f"above in {sum(g > 0 for g in gains)} and below in {sum(g < 0 for g in gains)} of "
            f"{len(gains)} trainings"
        )
    return lines + spreads(rows, found, setting)


def spreads(rows: Sequence[Row], found: dict[tuple[str, int], Measured], setting: str) -> list[str]:
    """Return the largest less the smallest mean score over the batch sizes, of the same seeds."""
    lines = []
    for task in dict.fromkeys(task for task, _ in found):
        sizes = sorted(size for name, size in found if name == task)
        common = set.intersection(*({*found[task, size].seeds} for size in sizes))
        if len(sizes) < 3 or not common:
            continue
        own = [row for row in rows if row["task"] == task and row["seed"] in common]
        again = measured(own, setting)
        each = [again[task, size] for size in sizes]
        means = {"best of seven": [one.best for one in each]} | {
            way: [statistics.mean(one.scores[way]) for one in each]
            for way in each[0].scores
            if all(way in one.scores for one in each)
        }
        text = ", ".join(f"{way} {max(m) - min(m):.2f}" for way, m in means.items())
        of = f"{', '.join(map(str, sizes))} (seeds {', '.join(sorted(common))})"
        lines.append(f"{setting}, {task}: spread over batch sizes {of}: {text}")
    return lines


def main() -> None:
    """Measure what is not in the CSV."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--setting", nargs="+", default=[*OBJECTIVES], choices=[*OBJECTIVES])
    parser.add_argument("--batch", nargs="+", type=int, default=[BATCH], metavar="N")
    parser.add_argument("--seed", nargs="+", type=int, default=SEEDS, metavar="SEED")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--raw", type=Path, default=RAW, help="a raw encoder [papers/encoders]")
    parser.add_argument("--csv", type=Path, default=CSV)
    parser.add_argument("--thermostats", action="store_true", help="train with these, too")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.held_out:
        found = [held_out(options.raw, seed) for seed in SEEDS]
        ledger.write(CSV.with_name("tuning-held-out.csv"), list(found[0]), found)
        print(*found, sep="\n")
        return
    rows = ledger.read(options.csv)
    if not options.show:
        for seed, task in itertools.product(options.seed, tasks(options.data, options.raw)):
            if options.only in task.name:
                for setting in options.setting:
                    named = ways(setting, thermostats=options.thermostats)
                    measure(task, seed, setting, named, options.batch, rows, options.csv)
    print("\n".join(line for setting in OBJECTIVES for line in report(rows, setting)))


def measure(
    task: Task,
    seed: int,
    setting: str,
    ways: Mapping[str, Callable[[], Fixed]],
    batches: Sequence[int],
    rows: list[Row],
    file: Path,
) -> None:
    """Add what is missing of a task and a seed to the rows and to the file."""
    mark = SentenceEncoder.load(task.encoder, device="cpu").fingerprint()
    there = {
        (int(row["batch"]), row["way"]): row["encoder"]
        for row in rows
        if (row["task"], row["seed"], row["setting"]) == (task.name, str(seed), setting)
    }
    if {*there.values()} - {mark}:
        raise SystemExit(f"{file}: {task.name} was measured with another encoder than {mark}")

    def add(batch: int, way: str, value: float, scores: Sequence[float], began: float) -> None:
        row = (
            *(task.name, mark, seed, batch, setting, way, f"{value:.3g}"),
            *([f"{each:.2f}" for each in scores] or ("", "", "")),
            *(task.steps * BATCH // batch, round(time.process_time() - began), torch.__version__),
        )
        rows.append(dict(zip(COLUMNS, map(str, row), strict=True)))
        print(", ".join(map(str, row)), flush=True)
        ledger.write(file, COLUMNS, rows)

    missing = [(n, way) for n in batches for way in ways if (n, way) not in there]
    audits = [n for n in batches if (n, "recommended") not in there]
    if not missing and not audits:
        return
    with prepared(task, seed) as (output, store):
        began = time.process_time()
        for n, value in recommended(task, setting, seed, output).items() if audits else ():
            if n in audits:
                add(n, "recommended", value, (), began)
        for n, name in missing:
            began, way = time.process_time(), ways[name]()
            scores = train(task, settings_of(task, n, seed, output), store, way)
            add(n, name, way.value, scores, began)


if __name__ == "__main__":
    main()
