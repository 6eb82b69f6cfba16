"""Images without labels, on the handwritten digits that scikit-learn brings: no download.

    python examples/digits.py [--output DIR] [--seed N]

Two methods, one with negatives (SimCLR) and one without (SimSiam), each as it is and with
cut-initialization (Draganov et al. 2024: c = 3 and c = 9). What the paper says shows in the norms:
a cosine's gradient is divided by the norm of the embedding, so smaller embeddings move further in a
step.
"""

import argparse
import csv
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import isotrope
from isotrope.core.documents import read_yaml
from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.training.images.settings import ImageSettings

CELLS: dict[str, dict[str, Any]] = {
    "simclr": {"method": "simclr"},
    "simclr-cut-3": {"method": "simclr", "cut": 3.0},
    "simsiam": {"method": "simsiam"},
    "simsiam-cut-9": {"method": "simsiam", "cut": 9.0},
}
"""Settings of the four runs, by folder."""

COMMON: dict[str, Any] = {
    "encoder": "resnet9",
    "width": 16,
    "augment": "p3",
    "batch_size": 128,
    # a third of the recipe's: cut weights move further in a step, and at .06 too far (docs/LOG.md)
    "learning_rate": 0.02,
    "knn_every": 1,
    "log_every": 1,
    "progress": False,
}


@dataclass(frozen=True)
class ImageRow:
    """One run: its accuracies by nearest neighbours, and the norms that its objective saw.

    Attributes:
        name: of its folder.
        knn: epoch to accuracy in percent, 0 being the untrained encoder.
        norm: epoch to mean norm of the head's output in that epoch, from 1.
        result: of the run.
    """

    name: str
    knn: dict[int, float]
    norm: dict[int, float]
    result: Result


@dataclass(frozen=True)
class ImageDemo:
    """What the demo found and wrote: its rows, picture.svg and report.html."""

    rows: list[ImageRow]
    picture: Path
    report: Path


def demo_images(
    output: Path, *, seed: int = 0, epochs: int = 8, tell: Callable[[str], None] = print
) -> ImageDemo:
    """Train the four runs, draw them side by side, write a report.

    Args:
        output: folder; an earlier demo in it is replaced.
        seed: of all runs.
        epochs: of each.
        tell: is given a line when a run is done.

    Raises:
        InputError: the folder holds something that is not a demo of ours.
    """
    output = Path(output)
    _make_room(output)
    rows = []
    for name, settings in CELLS.items():
        outcome = isotrope.fit_images(
            "digits", output=output / name, seed=seed, epochs=epochs, **COMMON, **settings
        )
        rows.append(_row(name, outcome.output, outcome.result))
        tell(f"{name}: {outcome.result.details['verdict']}")
    for suffix in ("svg", "png"):
        with atomic_replace(output / f"picture.{suffix}") as temporary:
            _draw(rows).savefig(temporary, dpi=200)
    report = isotrope.report([output / name for name in CELLS], output / "report.html")
    return ImageDemo(rows, output / "picture.svg", report)


def _draw(rows: list[ImageRow]) -> Figure:
    figure = Figure(figsize=(8.1, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    for row in rows:
        left.plot([*row.knn], [*row.knn.values()], label=row.name)
        right.plot([*row.norm], [*row.norm.values()])
    left.set(xlabel="epoch", ylabel="kNN accuracy, %")
    right.set(xlabel="epoch", ylabel="norm of the embeddings", yscale="log")
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def _make_room(output: Path) -> None:
    if not output.is_dir():
        return
    written = {"picture.svg", "picture.png", "report.html"}
    strange = sorted(
        item.name for item in output.iterdir() if item.name not in written and not _is_cell(item)
    )
    if strange:
        raise InputError(
            f"{output} holds something else than a demo ({strange[0]}); choose another folder"
        )
    shutil.rmtree(output)


def _is_cell(run: Path) -> bool:
    """Return whether a folder is one of our runs, and not another's of the same name."""
    if run.name not in CELLS or not RunFolder(run).config.is_file():
        return False
    settings = ImageSettings.read(read_yaml(RunFolder(run).config))
    ours = {"data": "digits", **COMMON, **CELLS[run.name]}
    return all(getattr(settings, name) == value for name, value in ours.items())


def _row(name: str, run: Path, result: Result) -> ImageRow:
    with RunFolder(run).metrics.open(newline="", encoding="utf-8") as handle:
        logged = list(csv.DictReader(handle))
    per_epoch = result.details["plan"]["steps_per_epoch"]
    scores = {round(int(r["step"]) / per_epoch): float(r["knn"]) for r in logged if r["knn"]}
    norms: dict[int, list[float]] = {}
    for row in logged:
        if row["norm"]:
            norms.setdefault(int(row["step"]) // per_epoch + 1, []).append(float(row["norm"]))
    means = {epoch: sum(values) / len(values) for epoch, values in norms.items()}
    return ImageRow(name, scores, means, result)


def _show(title: str, rows: Mapping[str, Mapping[int, float]], form: str) -> None:
    print(f"\n{title}, by epoch")
    for name, values in rows.items():
        print(f"{name:<14}", *(f"{value:{form}}" for value in values.values()))


def main() -> int:
    """Run, print the tables and the paths; return the exit code."""
    parser = argparse.ArgumentParser(description="Train image encoders on digits, without labels.")
    add = parser.add_argument
    add("--output", type=Path, default=Path("demo-images"), metavar="DIR", help="[demo-images]")
    add("--seed", type=int, default=0, metavar="N", help="of all runs [0]")
    options = parser.parse_args()
    try:
        done = demo_images(
            options.output, seed=options.seed, tell=lambda line: print(line, flush=True)
        )
    except InputError as error:
        print(f"digits: error: {error}", file=sys.stderr)
        return 2
    _show("kNN accuracy, %", {row.name: row.knn for row in done.rows}, "7.1f")
    norms = {row.name: row.norm for row in done.rows}
    _show("mean norm of the embeddings that the objective sees", norms, "7.3g")
    print(f"\npicture: {done.picture}\nreport:  {done.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
