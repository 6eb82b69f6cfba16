"""The zoo: small real trainings, twelve of them broken on purpose, and what the doctor says.

``python -m benchmarks.zoo`` (`make zoo`) trains every animal that has not been trained
yet, diagnoses all of them, and writes zoo.csv: the planted cause, the verdict, right or wrong. It
goes on where it was stopped.

It has three parts. The thresholds of the doctor were set on ``tuning``: documentation installed on
this machine and scikit-learn's digits, a small encoder trained here and ResNet-9, seed 0. They were
judged on ``first``: all-MiniLM-L6-v2, ResNet-18, Wikipedia, STS-B and CIFAR-10, seed 2. What came
out wrong there was mended (docs/diagnosis.md), so that ``first`` judges no more; ``judged`` does: a
masked language model, another ResNet-9, MRPC, other sentences of Wikipedia, seed 3. Nothing was
changed after its verdicts had been seen.
"""

import argparse
import contextlib
import csv
import io
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.zoo.trainings import ANIMALS, HALVES, Animal, Half
from benchmarks.zoo.data import BREAKS, broken_model, judged_texts, tuning_texts
from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace
from isotrope.diagnostics.doctor import diagnose
from isotrope.diagnostics.examine import examine
from isotrope.diagnostics.findings import HEALTHY, Diagnosis
from isotrope.training.images.settings import ImageSettings
from isotrope.training.images.train import train as train_images
from isotrope.training.settings import TrainSettings
from isotrope.training.text import train

__all__ = ["Seen", "keep", "visit"]

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
"""Beside the checkout, as the tests have it."""


@dataclass(frozen=True)
class Seen:
    """One animal, diagnosed.

    Attributes:
        half: of the zoo.
        animal: what it is.
        seed: of its training.
        diagnosis: None where it cannot be trained here.
        first: and ``last``: its dev scores, None without.
        last: see ``first``.
    """

    half: str
    animal: Animal
    seed: int
    diagnosis: Diagnosis | None
    first: float | None = None
    last: float | None = None

    @property
    def right(self) -> bool:
        """Whether the planted cause comes first, with its change; or nothing does."""
        if self.diagnosis is None or self.diagnosis.verdict[0] != self.animal.cause:
            return False
        findings = self.diagnosis.findings
        return not findings or findings[0].change.startswith(self.animal.change)

    @property
    def mark(self) -> str:
        """``right``, ``wrong``, or ``fell``: its dev score did, so that it was not healthy."""
        fell = self.first is not None and self.last is not None and self.last < self.first
        if self.animal.cause == HEALTHY and fell:
            return "fell"
        return "right" if self.right else "wrong"


def visit(
    output: Path, halves: Sequence[Half] = HALVES, animals: Sequence[Animal] = ANIMALS
) -> Iterator[Seen]:
    """Train what has not been trained, diagnose, and yield one animal after the other.

    Args:
        output: folder of all runs and data.
        halves: of the zoo.
        animals: of each half.
    """
    for half in halves:
        for seed in half.seeds:
            for animal in animals:
                yield _seen(Path(output).resolve(), half, seed, animal)


def _seen(output: Path, half: Half, seed: int, animal: Animal) -> Seen:
    place = output / f"{half.name}-{seed}"
    if half.name != "tuning" and not SHARED.is_dir():
        return Seen(half.name, animal, seed, None)
    run = place / animal.name
    if not (run / "result.json").is_file():
        _prepare(place, half, seed)
        _train(_words(animal.command, place, half), run, seed)
    case = examine(run)
    scores = [score for _, score in case.scores]
    ends = (scores[0], scores[-1]) if scores else (None, None)
    return Seen(half.name, animal, seed, diagnose(case), *ends)


def _prepare(place: Path, half: Half, seed: int) -> None:
    """Write the half's texts, and as soon as there is an encoder to break, its broken ones."""
    data = place / "data"
    if not data.is_dir():
        write = tuning_texts if half.name == "tuning" else judged_texts
        with atomic_replace(data) as temporary:
            temporary.mkdir()
            write(temporary, SHARED, seed)
    small = half.words["small"].format(runs=place, shared=SHARED)
    if small == str(place / "scratch") and not (place / "scratch" / "result.json").is_file():
        return  # it is the first to be trained
    for what in BREAKS:
        if not (place / "models" / what).is_dir():
            broken_model(small, what, place / "models" / what)


def _words(command: str, place: Path, half: Half) -> list[str]:
    """The command's words, with what stands in braces in its place."""
    known = {
        "data": place / "data",
        "runs": place,
        "shared": SHARED,
        **{what: place / "models" / what for what in BREAKS},
    }
    filled = {name: text.format(**known) for name, text in half.words.items()}
    return shlex.split(command.format(**{**known, **filled}))


def _train(words: Sequence[str], run: Path, seed: int) -> None:
    """Train as the command would; a training that refuses to go on leaves its log."""
    verb, what, *flags = words
    values: dict[str, object] = {"output": str(run), "seed": seed, "progress": False}
    values["data" if verb == "train-images" else "files"] = what
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


def keep(seen: Sequence[Seen], path: Path) -> list[dict[str, str]]:
    """Write the table as CSV, and return it; what was kept before of other animals stays."""
    rows = {tuple(row[k] for k in HEADER[:3]): row for row in _kept(path)}
    for one in seen:
        cells = _cells(one)
        rows[tuple(cells[:3])] = dict(zip(HEADER, cells, strict=True))
    halves, animals = ([thing.name for thing in things] for things in (HALVES, ANIMALS))
    order = sorted(rows, key=lambda k: (halves.index(k[0]), int(k[1]), animals.index(k[2])))
    with (
        atomic_replace(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as handle,
    ):
        writer = csv.DictWriter(handle, HEADER, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[key] for key in order)
    return [rows[key] for key in order]


def _kept(path: Path) -> list[dict[str, str]]:
    """The rows of animals that there still are."""
    if not path.is_file():
        return []
    known = {animal.name for animal in ANIMALS}
    with path.open(newline="", encoding="utf-8") as handle:
        return [row for row in csv.DictReader(handle) if row["animal"] in known]


HEADER = ("half", "seed", "animal", "right", "dev", "planted", "verdict", "change", "command")
WIDTHS = (7, 2, 15, 6, 14, 21, 21, 30)


def _cells(one: Seen) -> list[str]:
    diagnosis = one.diagnosis
    dev = "" if one.first is None or one.last is None else f"{one.first:.1f} to {one.last:.1f}"
    return [
        one.half,
        str(one.seed),
        one.animal.name,
        "" if diagnosis is None else one.mark,
        dev,
        one.animal.cause,
        "not run" if diagnosis is None else " ".join(diagnosis.verdict),
        diagnosis.findings[0].change.split(" (")[0] if diagnosis and diagnosis.findings else "",
        one.animal.command,
    ]


def _count(rows: Sequence[dict[str, str]], half: str) -> str:
    """How many of a half are right."""
    run = [row for row in rows if row["half"] == half and row["verdict"] != "not run"]
    if not run:
        return f"{half}: not run: the data is not beside the checkout"
    counts = []
    for what, sound in (("broken", False), ("healthy", True)):
        kind = [r["right"] for r in run if (r["planted"] == HEALTHY) == sound]
        kind = [mark for mark in kind if mark != "fell"]
        counts.append(f"{kind.count('right')} of {len(kind)} {what} ones right")
    return f"{half}: {', '.join(counts)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Visit the zoo, print the table and the count."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo",
        description="Train what has not been trained yet, diagnose all, write DIR/zoo.csv.",
    )
    names = [half.name for half in HALVES]
    add = parser.add_argument
    add("--output", type=Path, default=Path("zoo"), metavar="DIR", help="[zoo]")
    add("--half", choices=names, action="append", help="[both]")
    add("--animal", choices=[a.name for a in ANIMALS], action="append", help="[all]")
    options = parser.parse_args(arguments)
    halves = [half for half in HALVES if half.name in (options.half or names)]
    animals = [a for a in ANIMALS if options.animal is None or a.name in options.animal]
    rows: list[dict[str, str]] = []
    for one in visit(options.output, halves, animals):
        print(*(f"{cell:<{w}}" for cell, w in zip(_cells(one), WIDTHS, strict=False)), flush=True)
        rows = keep([one], options.output / "zoo.csv")
    for half in halves:
        print(_count(rows, half.name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
