"""The transfer tasks twice: all fits at once, and one after the other as SentEval runs them.

Both train the same classifiers on the same embeddings; what may differ is rounding, by which a fit
now and then stops at another look. Each task and way is one row of the CSV, written when it is
ready; rows that are there are not computed again, so a run that was stopped goes on where it was.
Seconds are those of the classifiers alone (wall clock, and of the processor, which other work on
the machine disturbs less); embeddings are computed before and kept in ``--embeddings``. The page
beside the CSV is written anew after each row.

    python benchmarks/transfer.py [--data DIR] [--encoder NAME] [--mode full|prototyping]
        [--tasks CR TREC ...] [--fits batched sequential] [--embeddings DIR] [--csv FILE]
"""

import argparse
import hashlib
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch

import ledger
from isotrope.core.files import atomic_replace, write_text
from isotrope.data.text.transfer_sets import TASKS, TransferTask, load_transfer
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.classifier import fit as fit_batched
from isotrope.evaluation.transfer import MODES, transfer_task
from sequential import fit_sequential

ROOT = Path(__file__).parents[1]
FITS = {"batched": fit_batched, "sequential": fit_sequential}
NUMBERS = ("accuracy", "devacc", "f1", "seconds", "processor_seconds")
COLUMNS = (
    "task",
    "mode",
    "fit",
    *NUMBERS,
    "errors",
    "encoder",
    "dimension",
    "threads",
    "machine",
    "torch",
    "numpy",
    "scikit_learn",
)
QUICK_FIRST = ("TREC", "MRPC", "CR", "SST2", "SUBJ", "MPQA", "MR")


class Kept:
    """An encoder that keeps what it has encoded in a folder, one file for each list of texts."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._encoder: SentenceEncoder | None = None

    def encode(self, texts: list[str], batch_size: int = 128) -> np.ndarray:
        """Return the embeddings, from the file if there is one."""
        key = hashlib.sha256("\n".join([self.name, *texts]).encode()).hexdigest()[:16]
        path = self.folder / f"{key}.npy"
        if not path.exists():
            if self._encoder is None:
                self._encoder = SentenceEncoder.load(self.name, device="cpu")
            vectors = self._encoder.encode(texts, batch_size=batch_size, progress=True)
            with atomic_replace(path) as temporary, temporary.open("wb") as handle:
                np.save(handle, vectors)
        return np.load(path)


def texts_of(task: TransferTask) -> list[str]:
    """Return the texts of a task in the order in which it asks for them, each once."""
    parts = task.splits.values()
    firsts = [text for examples in parts for text in examples.texts]
    return list(dict.fromkeys(firsts + [text for e in parts for text in e.seconds]))


def measured(encoder: Kept, task: TransferTask, mode: str, fit: str) -> dict[str, Any]:
    """Return the row of one task and way."""
    dimension = encoder.encode(texts_of(task)).shape[1]  # not part of the time
    wall, processor = time.perf_counter(), time.process_time()
    score = transfer_task(encoder, task, mode=mode, fit=FITS[fit])
    return {
        "task": task.name,
        "mode": mode,
        "fit": fit,
        **score.numbers(),
        "seconds": round(time.perf_counter() - wall, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "errors": int((score.correct == 0).sum()),
        "encoder": encoder.name,
        "dimension": dimension,
        "threads": torch.get_num_threads(),
        "machine": f"{processor_name()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scikit_learn": sklearn.__version__,
    }


def processor_name() -> str:
    """Return what the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the CSV, and the page beside it."""
    ledger.write(path, COLUMNS, rows)
    write_text(path.with_suffix(".md"), page(rows))


def page(rows: list[dict[str, Any]]) -> str:
    """Return the comparison as Markdown."""
    parts = ["# The transfer tasks, fitted at once and one after the other", ""]
    for encoder, mode in dict.fromkeys((row["encoder"], row["mode"]) for row in rows):
        chosen = [row for row in rows if (row["encoder"], row["mode"]) == (encoder, mode)]
        parts += table(chosen, f"{encoder}, {mode} mode")
    last = rows[-1]
    parts += [
        "Accuracy in percent; errors are test examples classified wrong; s are seconds of the "
        "classifiers alone, without the embeddings, in brackets those of the processor, which "
        "other work on the machine disturbs less.",
        "",
        f"Written by `python benchmarks/transfer.py`: {last['machine']}, {last['threads']} "
        f"thread(s) of torch {last['torch']}, numpy {last['numpy']}, scikit-learn "
        f"{last['scikit_learn']}; embeddings of {last['dimension']} dimensions; seed 1111.",
    ]
    return "\n".join(parts) + "\n"


def table(rows: list[dict[str, Any]], title: str) -> list[str]:
    """Return the lines of one table."""
    by_task = {(row["task"], row["fit"]): row for row in rows}
    lines = [
        f"## {title}",
        "",
        "| task | batched | sequential | difference | errors, batched | errors, sequential "
        "| s, batched | s, sequential |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        pair = [by_task.get((task, fit)) for fit in ("batched", "sequential")]
        if any(pair):
            lines.append("| " + " | ".join([task, *cells(pair)]) + " |")
    sums = [total(by_task, fit) for fit in ("batched", "sequential")]
    return [*lines, "| average, sum | " + " | ".join(cells(sums)) + " |", ""]


def total(by_task: dict[tuple[str, str], dict[str, Any]], fit: str) -> dict[str, Any] | None:
    """Return average accuracy and summed errors and times, None unless all seven are there."""
    rows = [by_task[task, fit] for task in TASKS if (task, fit) in by_task]
    if len(rows) < len(TASKS):
        return None
    columns = ("errors", "seconds", "processor_seconds")
    sums = {column: sum(float(row[column]) for row in rows) for column in columns}
    accuracy = float(np.mean([float(row["accuracy"]) for row in rows]))
    return {**sums, "errors": int(sums["errors"]), "accuracy": accuracy}


def cells(pair: list[dict[str, Any] | None]) -> list[str]:
    """Return accuracies, their difference, errors and times; empty where there is no row."""
    accuracy = ["" if row is None else f"{float(row['accuracy']):.2f}" for row in pair]
    difference = f"{float(accuracy[0]) - float(accuracy[1]):+.2f}" if all(accuracy) else ""
    errors = ["" if row is None else str(row["errors"]) for row in pair]
    times = [
        ""
        if row is None
        else f"{float(row['seconds']):.0f} ({float(row['processor_seconds']):.0f})"
        for row in pair
    ]
    return [*accuracy, difference, *errors, *times]


def main() -> None:
    """Measure what is not in the CSV yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "transfer")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--mode", choices=tuple(MODES), default="full")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=QUICK_FIRST)
    parser.add_argument("--fits", nargs="+", choices=tuple(FITS), default=tuple(FITS))
    parser.add_argument("--embeddings", type=Path, default=Path("runs") / "embeddings")
    parser.add_argument(
        "--csv", type=Path, default=ROOT / "docs" / "results" / "transfer-minilm.csv"
    )
    options = parser.parse_args()
    data = load_transfer(options.data, options.tasks)
    encoder = Kept(options.encoder, options.embeddings)
    for fit in options.fits:
        for name in options.tasks:
            rows = ledger.read(options.csv)
            key = (options.encoder, options.mode, name, fit)
            if key in {(r["encoder"], r["mode"], r["task"], r["fit"]) for r in rows}:
                continue
            row = measured(encoder, data[name], options.mode, fit)
            write(options.csv, [*rows, row])
            print({column: row.get(column) for column in ("task", "fit", *NUMBERS)}, flush=True)
    write(options.csv, ledger.read(options.csv))  # the page, if only its words have changed


if __name__ == "__main__":
    main()
