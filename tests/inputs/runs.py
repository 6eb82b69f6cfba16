"""Run folders with damaged files, for the verbs that look at them."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.inputs.case import Bench, Case
from tests.inputs.text import content

METRICS: dict[str, tuple[bytes | str, str]] = {
    "no bytes": ("", "step"),
    "words": ("hello\n", "step"),
    "bytes": (b"step\n\xff\n", "metrics.csv"),
    "NUL": (b"step,loss\n1,\0\n", "metrics.csv"),
    "cells of words": ("step,loss\n1,low\n", "metrics.csv"),
    "a step of words": ("step,loss\nfirst,1\n", "metrics.csv"),
    "a step of infinity": ("step,loss\ninf,1\n", "metrics.csv"),
    "no step": ("step,loss\n,1\n", "metrics.csv"),
    "more cells": ("step,loss\n1,2,3\n", "metrics.csv"),
    "fewer cells": ("step,loss\n1\n2,3\n", "metrics.csv"),
    "a quote without end": ('step,loss\n1,"2\n' + "3,4\n" * 50_000, "metrics.csv"),
}
RESULT: dict[str, tuple[bytes | str, str]] = {
    "no JSON": ("{", "is not a result of isotrope"),
    "a list": ("[]", "is not a result of isotrope"),
    "nothing": ("null", "is not a result of isotrope"),
    "other keys": ('{"x": 1}', "is not a result of isotrope"),
    "bytes": (b"\xff", "is not UTF-8 text"),
    "no end": ("[" * 100_000, "is not a result of isotrope"),
    "5,000 digits": (f'{{"kind": {"9" * 5000}}}', "is not a result of isotrope"),
    "metrics in a list": ('{"kind": "train", "name": "a", "metrics": []}', "metrics"),
    "details in a list": (
        '{"kind": "train", "name": "a", "metrics": {}, "details": []}',
        "details",
    ),
    "another kind": ('{"kind": "sts", "name": "a", "metrics": {}}', "sts"),
    "a kind of lists": ('{"kind": ["train"], "name": "a", "metrics": {}}', ""),
}
CONFIG: dict[str, tuple[bytes | str, str]] = {
    "no YAML": ("a: [1", "config.yaml"),
    "a list": ("- a\n", "config.yaml"),
    "nothing": ("", "config.yaml"),
    "bytes": (b"\xff\xfe\0", "config.yaml"),
    "a Python call": ("seed: !!python/object/apply:os.system ['touch opened']\n", "config.yaml"),
    "an impossible date": ("dev: 2020-99-99\n", "config.yaml"),
    "5,000 digits": (f"seed: {'9' * 5000}\n", "config.yaml"),
    "no end": ("files: " + "[" * 100_000, "config.yaml"),
    "a key twice": ("files: [a]\nseed: 1\nseed: 2\n", "config.yaml"),
}


def _of(run: Path, room: Path) -> Path:
    return Path(shutil.copytree(run, room / "run")).relative_to(room)


def _damaged() -> Iterator[Case]:
    for file, table in (
        ("metrics.csv", METRICS),
        ("result.json", RESULT),
        ("config.yaml", CONFIG),
    ):
        for what, (data, says) in table.items():
            for verb in ("report", "diagnose"):
                if verb == "diagnose" and (file, what) in (
                    ("result.json", "another kind"),  # the log is of a training all the same
                    ("metrics.csv", "no bytes"),  # a run that has not logged yet
                ):
                    continue

                def made(
                    room: Path,
                    bench: Bench,
                    file: str = file,
                    data: bytes | str = data,
                    verb: str = verb,
                ) -> Sequence[object]:
                    folder = _of(bench.run, room)
                    content(room / folder / file, data)
                    return [verb, folder]

                yield Case(f"runs/{verb} {file} of {what}", made, says)
    spoilt: dict[str, Callable[[Path], object]] = {
        "a pipe": os.mkfifo,
        "a folder": lambda path: path.mkdir(),
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "a link to itself": lambda path: path.symlink_to(path.name),
    }
    for file in ("metrics.csv", "result.json", "config.yaml", "diagnosis.json"):
        for what, spoil in spoilt.items():

            def odd(
                room: Path, bench: Bench, file: str = file, spoil: Callable[[Path], object] = spoil
            ) -> Sequence[object]:
                folder = _of(bench.run, room)
                (room / folder / file).unlink(missing_ok=True)
                spoil(room / folder / file)
                return ["report", folder]

            yield Case(f"runs/report {file} is {what}", odd, file)


def _others() -> Iterator[Case]:
    diagnoses: dict[str, bytes | str] = {
        "no JSON": "{",
        "a list": "[]",
        "no end": "[" * 100_000,
        "5,000 digits": f'{{"verdict": [{"9" * 5000}]}}',
        "no findings": '{"verdict": ["a"]}',
        "findings of numbers": '{"verdict": ["a"], "findings": [1]}',
    }
    for what, data in diagnoses.items():

        def diagnosed(room: Path, bench: Bench, data: bytes | str = data) -> Sequence[object]:
            folder = _of(bench.run, room)
            content(room / folder / "diagnosis.json", data)
            return ["report", folder]

        yield Case(f"runs/diagnosis of {what}", diagnosed, "diagnosis.json")
    for verb in ("report", "diagnose"):
        yield Case(f"runs/{verb} nowhere", lambda room, bench, verb=verb: [verb, "./nowhere"])
        yield Case(f"runs/{verb} an empty folder", lambda room, bench, verb=verb: [verb, room])
        yield Case(f"runs/{verb} a file", lambda room, bench, verb=verb: [verb, bench.sentences])


def _evaluated() -> Iterator[Case]:
    told: dict[str, tuple[str, str, str]] = {
        "data that has gone": ("config.yaml", "data: nowhere\nmethod: simclr\n", "is not opened"),
        "data that is a list": ("config.yaml", "data: [a]\n", "is not opened"),
        "a seed of words": ("config.yaml", "data: DATA\nseed: many\n", "is not opened"),
        "a limit of NaN": ("config.yaml", "data: DATA\nlimit: .nan\n", "is not opened"),
        "a share of infinity": ("config.yaml", "data: DATA\nholdout: .inf\n", "is not opened"),
        "a result without end": ("result.json", "[" * 100_000, "not a result"),
        "details of words": (
            "result.json",
            '{"kind": "train-images", "name": "a", "metrics": {}, "details": {"data": "x"}}',
            "changed after",
        ),
        "a side of words": (
            "result.json",
            '{"kind": "train-images", "name": "a", "metrics": {}, '
            '"details": {"data": {"side": "x"}}}',
            "",
        ),
        "a key twice": ("config.yaml", "data: DATA\nseed: 1\nseed: 2\n", "twice"),
        "5,000 digits": ("config.yaml", f"data: DATA\nseed: {'9' * 5000}\n", "config.yaml"),
    }
    for what, (file, data, says) in told.items():

        def made(room: Path, bench: Bench, file: str = file, data: str = data) -> Sequence[object]:
            folder = _of(bench.image_run, room)
            content(room / folder / file, data.replace("DATA", f"'{bench.pictures}'"))
            return ["evaluate", folder, "--knn"]

        yield Case(f"runs/evaluate with {what}", made, says)


def cases() -> Iterator[Case]:
    """Yield them."""
    yield from _damaged()
    yield from _others()
    yield from _evaluated()
