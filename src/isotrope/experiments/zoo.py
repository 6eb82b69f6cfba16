"""The zoo: small real trainings, twelve of them broken on purpose, and what the doctor says.

``python -m isotrope.experiments.zoo`` (`make zoo`) trains every animal that has not been trained
yet, diagnoses all of them, and writes zoo.csv: the planted cause, the verdict, right or wrong. It
goes on where it was stopped.

The thresholds of the doctor were set on the tuning half: documentation installed on this machine
and scikit-learn's digits, a small encoder trained here and ResNet-9, seeds 0 and 1. The judged
half has other encoders (all-MiniLM-L6-v2, a masked language model, ResNet-18), corpora (Wikipedia,
STS-B, CIFAR-10) and seeds (2 and 3); no threshold was changed after its verdicts had been seen.
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

from isotrope.core.errors import InputError
from isotrope.core.files import replacing
from isotrope.diagnostics.doctor import diagnose
from isotrope.diagnostics.examine import examine
from isotrope.diagnostics.findings import HEALTHY, Diagnosis
from isotrope.experiments.zoo_data import BREAKS, broken_model, judged_texts, tuning_texts
from isotrope.methods.image_settings import ImageSettings
from isotrope.methods.image_training import train as train_images
from isotrope.methods.settings import TrainSettings
from isotrope.methods.training import train

__all__ = ["ANIMALS", "Animal", "Half", "Seen", "keep", "visit"]

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
"""Beside the checkout, as the tests have it."""


@dataclass(frozen=True)
class Animal:
    """One training, healthy or broken in one way.

    Attributes:
        name: of its folder.
        cause: the verdict that is right, ``healthy`` of a healthy one.
        change: what the first finding's change has to begin with.
        command: of `isotrope`, without --output and --seed; words in braces are the half's.
    """

    name: str
    cause: str
    change: str
    command: str


@dataclass(frozen=True)
class Half:
    """One half of the zoo.

    Attributes:
        name: ``tuning`` or ``judged``.
        seeds: of its trainings.
        words: what the words in braces of the commands stand for; ``{data}``, ``{small}`` and the
            broken models' names are folders below the output.
    """

    name: str
    seeds: tuple[int, ...]
    words: dict[str, str]


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


PAIRS = "train {data}/pairs.tsv {text}"
SMALL = f"{PAIRS} --encoder {{small}}"
TEXTS = "train {data}/texts.txt --encoder {small} {text}"
IMAGES = "train-images {images}"
DEV = "--dev {dev} --eval-every 1000"

BROKEN = (
    Animal("constant", "collapsed", "--encoder", f"{PAIRS} --encoder {{constant}}"),
    Animal(
        "line",
        "dimensional-collapse",
        "--objective.cov_coeff",
        f"{IMAGES} {{longer}} --method vicreg --method.dimension 128 --objective.cov_coeff 0",
    ),
    Animal(
        "temperature-3",
        "negatives-not-hard",
        "--objective.temperature",
        f"{SMALL} --objective.temperature 3",
    ),
    Animal(
        "margin-2",
        "never-dissipating",
        "--objective.margin",
        f"{SMALL} --objective mpt --objective.margin 2",
    ),
    Animal(
        "barlow-twins",
        "never-dissipating",
        "--objective modifiedbarlowtwins",
        f"{TEXTS} --objective barlowtwins",
    ),
    Animal(
        "learning-rate",
        "diverging",
        "--learning-rate",
        "train {data}/pairs.tsv --encoder scratch {scratch} --learning-rate 1e-2",
    ),
    Animal(
        "weight-decay",
        "collapsed",
        "--weight-decay",
        f"{IMAGES} {{longer}} --learning-rate 0.2 --weight-decay 5e-2",
    ),
    Animal("dropout-0", "dead-views", "--dropout", f"{TEXTS} --dropout 0"),
    Animal(
        "copies",
        "false-negatives",
        "--files",
        "train {data}/copies.txt --encoder {small} {text}",
    ),
    Animal("long", "norms-too-large", "--head mlp", f"{PAIRS} --encoder {{long}} --head none"),
    Animal("no-weight-decay", "norms-too-large", "--weight-decay", f"{IMAGES} --weight-decay 0"),
    Animal(
        "mixed-pairs",
        "unrelated-positives",
        "--columns",
        "train {data}/mixed.tsv --encoder {small} {text}",
    ),
)
"""The twelve causes."""

SOUND = (
    Animal(
        "scratch",
        HEALTHY,
        "",
        f"train {{data}}/pairs.tsv --encoder scratch {{scratch}} --learning-rate 1e-3 {DEV}",
    ),
    Animal("infonce", HEALTHY, "", f"{SMALL} {DEV}"),
    Animal("met", HEALTHY, "", f"{SMALL} --objective met {DEV}"),
    Animal("modified", HEALTHY, "", f"{SMALL} --objective modifiedbarlowtwins {DEV}"),
    Animal("simclr", HEALTHY, "", IMAGES),
    Animal("vicreg", HEALTHY, "", f"{IMAGES} --method vicreg --method.dimension 128"),
    Animal("byol", HEALTHY, "", f"{IMAGES} --method byol"),
)
"""Seven healthy ones, whose dev scores do not fall."""

ANIMALS = (*SOUND, *BROKEN)
"""All of them; the healthy ones first, because the tuning half's ``{small}`` is one of them."""

HALVES = (
    Half(
        "tuning",
        (0,),
        {
            "text": "--batch-size 64 --max-length 24 --max-steps 40 --learning-rate 3e-4 "
            "--log-every 4",
            "scratch": "--batch-size 64 --max-length 24 --max-steps 80 --log-every 4",
            "dev": "{data}/dev.tsv",
            "images": "digits --encoder resnet9 --width 8 --batch-size 64 --augment p3 "
            "--max-steps 80 --log-every 4 --no-linear --knn-every 0",
            "longer": "--max-steps 200 --log-every 10",
            "small": "{runs}/scratch",
        },
    ),
    Half(
        "judged",
        (2,),
        {
            "text": "--batch-size 24 --max-length 16 --max-steps 10 --learning-rate 3e-5 "
            "--log-every 1",
            "scratch": "--batch-size 64 --max-length 24 --max-steps 80 --log-every 4",
            "dev": "{data}/sts.tsv",
            "images": "{shared}/cifar10 --limit 3000 --knn-images 1000 --image-size 12 "
            "--encoder resnet18 --width 8 --batch-size 64 --augment p3 --max-steps 80 "
            "--log-every 4 --no-linear --knn-every 0",
            "longer": "--max-steps 200 --log-every 10",
            "small": "all-MiniLM-L6-v2",
        },
    ),
)


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
    if half.name == "judged" and not SHARED.is_dir():
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
        with replacing(data) as temporary:
            temporary.mkdir()
            write(temporary, SHARED, seed)
    small = half.words["small"].format(runs=place)
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


def keep(seen: Sequence[Seen], path: Path) -> None:
    """Write the table as CSV."""
    with (
        replacing(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as handle,
    ):
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(map(_cells, seen))


HEADER = ("half", "seed", "animal", "right", "dev", "planted", "verdict", "change", "command")
WIDTHS = (7, 2, 15, 6, 14, 21, 21, 30)


def _cells(one: Seen) -> list[str]:
    found = one.diagnosis
    dev = "" if one.first is None or one.last is None else f"{one.first:.1f} to {one.last:.1f}"
    return [
        one.half,
        str(one.seed),
        one.animal.name,
        "" if found is None else ("right" if one.right else "wrong"),
        dev,
        one.animal.cause,
        "not run" if found is None else " ".join(found.verdict),
        found.findings[0].change.split(" (")[0] if found and found.findings else "",
        one.animal.command,
    ]


def _count(seen: Sequence[Seen], half: str) -> str:
    """How many of a half are right."""
    told = []
    for what, sound in (("broken", False), ("healthy", True)):
        kind = [s for s in seen if s.half == half and (s.animal.cause == HEALTHY) == sound]
        shown = [s for s in kind if s.diagnosis is not None]
        if shown:
            told.append(f"{sum(s.right for s in shown)} of {len(shown)} {what} ones right")
    return f"{half}: {', '.join(told) or 'not run: the data is not beside the checkout'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Visit the zoo, print the table and the count."""
    parser = argparse.ArgumentParser(prog="python -m isotrope.experiments.zoo")
    parser.add_argument("--output", type=Path, default=Path("zoo"), metavar="DIR", help="[zoo]")
    names = [half.name for half in HALVES]
    parser.add_argument("--half", choices=names, action="append", help="[both]")
    parser.add_argument("--animal", choices=[a.name for a in ANIMALS], action="append")
    given = parser.parse_args(arguments)
    halves = [half for half in HALVES if half.name in (given.half or names)]
    animals = [a for a in ANIMALS if given.animal is None or a.name in given.animal]
    seen = []
    for one in visit(given.output, halves, animals):
        seen.append(one)
        print(*(f"{cell:<{w}}" for cell, w in zip(_cells(one), WIDTHS, strict=False)), flush=True)
    if given.animal is None:
        keep(seen, given.output / "zoo.csv")
    for half in halves:
        print(_count(seen, half.name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
