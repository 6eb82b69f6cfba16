"""The benchmark of broken trainings: small real trainings, twelve with a planted fault.

``python -m benchmarks.zoo`` (`make zoo`) makes the trainings without a result, diagnoses all of
them, and writes zoo.csv: the planted cause, the verdict, right or wrong. An interrupted run resumes
where it stopped.

It has three parts. The thresholds of the doctor were set on ``tuning``: documentation installed on
this machine and scikit-learn's digits, a small encoder trained here and ResNet-9, seed 0. They were
judged on ``first``: all-MiniLM-L6-v2, ResNet-18, Wikipedia, STS-B and CIFAR-10, seed 2. The
mistakes that it showed were corrected (docs/diagnosis.md), so the test set is now ``judged``: a
masked language model, another ResNet-9, MRPC, other sentences of Wikipedia, seed 3. Nothing was
changed after its verdicts had been seen.
"""

import argparse
import contextlib
import io
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ledger
from benchmarks.zoo.data import BREAKS, broken_model, judged_texts, tuning_texts
from benchmarks.zoo.trainings import PARTS, TRAININGS, Part, Training
from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace
from isotrope.core.run_folder import RunFolder
from isotrope.diagnostics.doctor import diagnose
from isotrope.diagnostics.findings import HEALTHY, Diagnosis
from isotrope.diagnostics.target import examine
from isotrope.training.images.settings import ImageSettings
from isotrope.training.images.train import train as train_images
from isotrope.training.settings import TrainSettings
from isotrope.training.text import train

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
"""The data beside the checkout, where the tests expect it too."""


@dataclass(frozen=True)
class DiagnosedTraining:
    """A training of the benchmark and its diagnosis.

    Attributes:
        part: name of the part.
        training: its planted cause and command.
        seed: of its training.
        diagnosis: None where it cannot be trained here.
        first: dev score before training; None without one.
        last: dev score after training; None without one.
    """

    part: str
    training: Training
    seed: int
    diagnosis: Diagnosis | None
    first: float | None = None
    last: float | None = None

    @property
    def right(self) -> bool:
        """Whether the planted cause comes first, with its change; or nothing does."""
        if self.diagnosis is None or self.diagnosis.verdict[0] != self.training.cause:
            return False
        findings = self.diagnosis.findings
        return not findings or findings[0].change.startswith(self.training.change)

    @property
    def mark(self) -> str:
        """``right``, ``wrong``, or ``fell``: its dev score did, so that it was not healthy."""
        fell = self.first is not None and self.last is not None and self.last < self.first
        if self.training.cause == HEALTHY and fell:
            return "fell"
        return "right" if self.right else "wrong"


def train_and_diagnose(
    output: Path, parts: Sequence[Part] = PARTS, trainings: Sequence[Training] = TRAININGS
) -> Iterator[DiagnosedTraining]:
    """Make the trainings without a result, and yield each with its diagnosis.

    Args:
        output: folder of all runs and data.
        parts: of the benchmark.
        trainings: of each part.
    """
    for part in parts:
        for seed in part.seeds:
            for training in trainings:
                yield _diagnosed(Path(output).resolve(), part, seed, training)


def _diagnosed(output: Path, part: Part, seed: int, training: Training) -> DiagnosedTraining:
    place = output / f"{part.name}-{seed}"
    if part.name != "tuning" and not SHARED.is_dir():
        return DiagnosedTraining(part.name, training, seed, None)
    run = place / training.name
    if not RunFolder(run).result.is_file():
        _prepare(place, part, seed)
        _train(_words(training.command, place, part), run, seed)
    case = examine(run)
    scores = [score for _, score in case.scores]
    ends = (scores[0], scores[-1]) if scores else (None, None)
    return DiagnosedTraining(part.name, training, seed, diagnose(case), *ends)


def _prepare(place: Path, part: Part, seed: int) -> None:
    """Write the part's texts, and its broken encoders once their source is trained."""
    data = place / "data"
    if not data.is_dir():
        write = tuning_texts if part.name == "tuning" else judged_texts
        with atomic_replace(data) as temporary:
            temporary.mkdir()
            write(temporary, SHARED, seed)
    small = part.words["small"].format(runs=place, shared=SHARED)
    scratch = RunFolder(place / "scratch")
    if small == str(scratch.path) and not scratch.result.is_file():
        return  # it is the first to be trained
    for what in BREAKS:
        if not (place / "models" / what).is_dir():
            broken_model(small, what, place / "models" / what)


def _words(command: str, place: Path, part: Part) -> list[str]:
    """Return the words of a command, with the placeholders in braces filled in."""
    known = {
        "data": place / "data",
        "runs": place,
        "shared": SHARED,
        **{what: place / "models" / what for what in BREAKS},
    }
    filled = {name: text.format(**known) for name, text in part.words.items()}
    return shlex.split(command.format(**{**known, **filled}))


def _train(words: Sequence[str], run: Path, seed: int) -> None:
    """Train like the command would; a training that stops with an error leaves its log."""
    verb, what, *flags = words
    values: dict[str, object] = {"output": str(run), "seed": seed, "progress": False}
    values["data" if verb == "train-images" else "files"] = what
    if verb == "train":
        values["recipe"] = "papers"
    waiting = list(reversed(flags))
    while waiting:
        name = waiting.pop()[2:]
        if name.startswith("no-"):
            values[name[3:]] = False
        else:
            values[name] = waiting.pop()
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(InputError):
        if verb == "train":
            train(TrainSettings.read(values))
        else:
            train_images(ImageSettings.read(values))


def write_table(seen: Sequence[DiagnosedTraining], path: Path) -> list[dict[str, str]]:
    """Write the table as CSV and return it; earlier rows of other trainings are kept."""
    rows = {tuple(row[k] for k in HEADER[:3]): row for row in _earlier_rows(path)}
    for one in seen:
        cells = _cells(one)
        rows[tuple(cells[:3])] = dict(zip(HEADER, cells, strict=True))
    parts, trainings = ([thing.name for thing in things] for things in (PARTS, TRAININGS))
    order = sorted(rows, key=lambda k: (parts.index(k[0]), int(k[1]), trainings.index(k[2])))
    ledger.write(path, HEADER, (rows[key] for key in order))
    return [rows[key] for key in order]


def _earlier_rows(path: Path) -> list[dict[str, str]]:
    """Return the earlier rows of trainings that still exist."""
    known = {training.name for training in TRAININGS}
    return [row for row in ledger.read(path) if row["animal"] in known]


HEADER = ("half", "seed", "animal", "right", "dev", "planted", "verdict", "change", "command")
WIDTHS = (7, 2, 15, 6, 14, 21, 21, 30)


def _cells(one: DiagnosedTraining) -> list[str]:
    diagnosis = one.diagnosis
    dev = "" if one.first is None or one.last is None else f"{one.first:.1f} to {one.last:.1f}"
    return [
        one.part,
        str(one.seed),
        one.training.name,
        "" if diagnosis is None else one.mark,
        dev,
        one.training.cause,
        "not run" if diagnosis is None else " ".join(diagnosis.verdict),
        diagnosis.findings[0].change.split(" (")[0] if diagnosis and diagnosis.findings else "",
        one.training.command,
    ]


def _count(rows: Sequence[dict[str, str]], part: str) -> str:
    """Return how many diagnoses of a part are right."""
    run = [row for row in rows if row["half"] == part and row["verdict"] != "not run"]
    if not run:
        return f"{part}: not run: the data is not beside the checkout"
    counts = []
    for what, sound in (("broken", False), ("healthy", True)):
        kind = [r["right"] for r in run if (r["planted"] == HEALTHY) == sound]
        kind = [mark for mark in kind if mark != "fell"]
        counts.append(f"{kind.count('right')} of {len(kind)} {what} ones right")
    return f"{part}: {', '.join(counts)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, print the table and the counts."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo",
        description="Train what has not been trained yet, diagnose all, write DIR/zoo.csv.",
    )
    names = [part.name for part in PARTS]
    add = parser.add_argument
    add("--output", type=Path, default=Path("zoo"), metavar="DIR", help="[zoo]")
    add("--part", choices=names, action="append", help="[all]")
    add(
        "--training",
        choices=[training.name for training in TRAININGS],
        action="append",
        help="[all]",
    )
    options = parser.parse_args(arguments)
    parts = [part for part in PARTS if part.name in (options.part or names)]
    trainings = [
        training
        for training in TRAININGS
        if options.training is None or training.name in options.training
    ]
    rows: list[dict[str, str]] = []
    for one in train_and_diagnose(options.output, parts, trainings):
        print(*(f"{cell:<{w}}" for cell, w in zip(_cells(one), WIDTHS, strict=False)), flush=True)
        rows = write_table([one], options.output / "zoo.csv")
    for part in parts:
        print(_count(rows, part.name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
