"""Papers 003 and 004 at the scale of a CPU: which method learns, what cuts and decay do to norms.

A cell is one `isotrope train-images` on 5,000 images of CIFAR-10 (500 a class), ResNet-18 with the
CIFAR stem and 16 channels in its first stage (1/16 of the usual multiplications), batch 64, crops
of paper 003's code; each with three seeds. Methods are trained for 8 epochs by their own recipes
(paper 004's), but that the predictors of SimSiam and BYOL learn ten times as fast as their encoders
and that BYOL's projections are normalised and its learning rate is SimSiam's: by the recipes alone
neither learns in so few steps (docs/LOG.md); the gradients of MIO, Barlow Twins and VICReg are
clipped to a norm of 4. The sweep over weight decay takes 4 epochs at the learning rate of paper
003's code for SimCLR in proportion, .15, because what decay does grows with it; cuts are tried at
learning rates thirty times smaller, too, again for 4 epochs. Nearest neighbours (k = 200, t = 0.1)
are looked up among the 5,000 for the 10,000 test images. What does not pass the raw pixels in 8
epochs is trained for 16, too. At .15 SimCLR's first gradients throw the projections far away with
some seeds, so its decays are swept with clipped gradients as well. Cells that are in the CSV are
not run again, so a run that was stopped goes on; the first seed of every cell comes before the
second, and the cells in LATER come after all others.

    python benchmarks/image_cells.py DATA [--minutes M] [--jobs N] [--only WORD] [--report]

DATA is the folder of CIFAR-10. The report has mean and standard deviation over the seeds there are.
"""

import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "image-cells.csv"
SEEDS = (0, 1, 2)
COMMON = ["--limit", "5000", "--encoder", "resnet18", "--width", "16", "--batch-size", "64"]
COMMON += ["--augment", "p3", "--precision", "bf16", "--log-every", "6", "--no-progress"]
COMMON += ["--workers", "0", "--checkpoint-every", "100000"]
LONG, SHORT = ["--epochs", "8", "--knn-every", "2"], ["--epochs", "4", "--knn-every", "4"]
SIMSIAM = ["--method", "simsiam", "--method.predictor_rate", "10"]
BYOL = ["--method", "byol", "--method.predictor_rate", "10", "--method.last_norm", "true"]
CLIP = ["--clip", "4"]  # or the first gradients, 100 to 355 long, throw the embeddings far away
METHODS = {
    "SimCLR": [],
    "SimSiam": SIMSIAM,
    "BYOL": [*BYOL, "--learning-rate", "0.06"],
    "MIOv3": ["--objective", "miov3", *CLIP],
    "SimCLR, c = 3": ["--cut", "3"],
    "SimSiam, c = 9": [*SIMSIAM, "--cut", "9"],
    "BYOL, c = 9": [*BYOL, "--learning-rate", "0.06", "--cut", "9"],
    "Barlow Twins": ["--method", "barlowtwins", *CLIP],
    "VICReg": ["--method", "vicreg", *CLIP],
    "MIOv2": ["--objective", "miov2", *CLIP],
    "MIOv1": ["--objective", "miov1", *CLIP],
    "DCL": ["--objective", "dcl"],
    "DCLW": ["--objective", "dclw"],
}
SLOW = {
    f"{name}, learning rate {rate}{told}": [
        *more,
        "--learning-rate",
        rate,
        "--knn-every",
        "2",
        *cut,
    ]
    for name, rate, more, c in (
        ("SimCLR", "0.001", [], "3"),
        ("SimSiam", "0.002", SIMSIAM, "9"),
        ("BYOL", "0.002", BYOL, "9"),
    )
    for told, cut in (("", []), (f", c = {c}", ["--cut", c]))
}
DECAYS = ("5e-2", "5e-3", "5e-4", "5e-6", "0")
DECAYED = {
    f"{name}, decay {decay}": [*more, "--learning-rate", "0.15", "--weight-decay", decay]
    for decay in DECAYS
    for name, more in (("SimCLR", []), ("SimSiam", SIMSIAM), ("BYOL", BYOL))
}
CLIPPED = {
    f"SimCLR, decay {decay}, clipped": [*DECAYED[f"SimCLR, decay {decay}"], *CLIP]
    for decay in DECAYS
}
LONGER = {f"{name}, 16 epochs": METHODS[name] for name in ("BYOL", "MIOv2")}
CELLS = {name: [*LONG, *more] for name, more in METHODS.items()}
CELLS |= {name: [*SHORT, *more] for name, more in {**SLOW, **DECAYED, **CLIPPED}.items()}
CELLS |= {name: ["--epochs", "16", "--knn-every", "4", *more] for name, more in LONGER.items()}
LATER = {"DCL", "DCLW", *(name for name in DECAYED if not name.startswith("SimCLR"))}
COLUMNS = (
    *("cell", "seed", "epoch", "knn", "linear", "loss", "norm", "norm_backbone"),
    *("opposite_halves", "far_opposite", "std", "effective_rank", "cpu_seconds", "versions"),
)
Row = dict[str, str]


def rows() -> list[Row]:
    """Return what was measured so far."""
    if not RESULTS.is_file():
        return []
    with RESULTS.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def write(found: list[Row]) -> None:
    """Write everything anew, cells in our order."""
    order = {name: place for place, name in enumerate(CELLS)}
    found = sorted(found, key=lambda r: (order[r["cell"]], int(r["seed"]), int(r["epoch"])))
    part = RESULTS.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    part.replace(RESULTS)


def train(data: str, cell: str, seed: int) -> list[Row]:
    """Run one cell with one seed; return a row for every epoch with a kNN accuracy."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "isotrope", "train-images", data, *COMMON, *CELLS[cell]]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        process = subprocess.Popen(
            [*command, "--seed", str(seed), "--output", str(run)],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{cell}, seed {seed}: exit code {process.returncode}")
        result = json.loads((run / "result.json").read_text(encoding="utf-8"))
        with (run / "metrics.csv").open(newline="", encoding="utf-8") as handle:
            logged = list(csv.DictReader(handle))
    return list(_epochs(cell, seed, result, logged, used))


def _epochs(
    cell: str, seed: int, result: dict, logged: list[Row], used: resource.struct_rusage
) -> Iterator[Row]:
    """Yield the kNN accuracies, with the means of what was logged in the epoch before each."""
    measured = [row for row in logged if row["epoch"]]
    per_epoch = result["details"]["plan"]["steps_per_epoch"]
    last = max(int(row["step"]) for row in logged)
    for row in logged:
        if not row["knn"]:
            continue
        epoch = round(int(row["step"]) / per_epoch)
        window = [m for m in measured if max(0, epoch - 1) <= float(m["epoch"]) < max(1, epoch)]
        means = {
            name: f"{statistics.fmean(values):.6g}"
            for name in COLUMNS[5:12]
            if (values := [float(m[name]) for m in window if m[name]])
        }
        versions = result["provenance"]["versions"]
        found = {
            "cell": cell,
            "seed": str(seed),
            "epoch": str(epoch),
            "knn": f"{float(row['knn']):.4g}",
            "versions": f"isotrope {versions['isotrope']}, torch {versions['torch']}",
        }
        if int(row["step"]) == last:
            found["linear"] = f"{result['metrics']['linear']:.4g}"
            found["cpu_seconds"] = f"{used.ru_utime + used.ru_stime:.0f}"
        yield {**dict.fromkeys(COLUMNS, ""), **means, **found}


def report() -> str:
    """Return the tables, one of each length: mean and standard deviation over seeds, by cell."""
    found = {row["cell"] for row in rows()}
    groups = [names for names in (METHODS, SLOW, DECAYED) if found & set(names)]
    return "\n\n".join(_table(names) for names in groups)


def _table(cells: Iterable[str]) -> str:
    found = [row for row in rows() if row["cell"] in cells]
    epochs = sorted({int(row["epoch"]) for row in found})
    lines = [
        "| cell | seeds | " + " | ".join(f"kNN at {e}" for e in epochs) + " | linear | norm | "
        "norm of features | opposite halves, at first |",
        "|---" * (len(epochs) + 6) + "|",
    ]
    for cell in cells:
        own = [row for row in found if row["cell"] == cell]
        if not own:
            continue
        columns = [_spread(own, "knn", e) for e in epochs]
        columns += [_spread(own, "linear", epochs[-1]), _spread(own, "norm", epochs[-1], 2)]
        columns += [_spread(own, "norm_backbone", epochs[-1], 2)]
        columns += [_spread(own, "opposite_halves", epochs[0], 3)]
        seeds = len({row["seed"] for row in own})
        lines.append(f"| {cell} | {seeds} | " + " | ".join(columns) + " |")
    return "\n".join(lines)


def _spread(found: list[Row], name: str, epoch: int, digits: int = 1) -> str:
    values = [float(r[name]) for r in found if int(r["epoch"]) == epoch and r[name]]
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", help="folder of CIFAR-10")
    parser.add_argument("--minutes", type=float, help="start no cell after so many")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time, one thread each [2]")
    parser.add_argument("--only", default="", metavar="WORD", help="cells with WORD in their name")
    parser.add_argument("--report", action="store_true", help="run nothing")
    given = parser.parse_args()
    if given.report or not given.data:
        print(report())
        return
    found = rows()
    done = {(row["cell"], row["seed"]) for row in found}
    missing = [
        (cell, seed)
        for later in (False, True)
        for seed in SEEDS
        for cell in CELLS
        if (cell in LATER) == later and given.only in cell and (cell, str(seed)) not in done
    ]
    start = time.monotonic()

    lock = threading.Lock()

    def one(item: tuple[str, int]) -> None:
        if given.minutes and time.monotonic() - start > 60 * given.minutes:
            return
        new = train(given.data, *item)
        with lock:
            found.extend(new)
            write(found)
        print(f"{new[-1]['cell']}, seed {new[-1]['seed']}: kNN {new[-1]['knn']}", flush=True)

    pool = ThreadPoolExecutor(given.jobs)
    try:
        for _ in pool.map(one, missing):
            pass
    finally:
        pool.shutdown(cancel_futures=True)  # a cell that fails ends the others
    print(report())


if __name__ == "__main__":
    main()
