"""Settings of both trainings that mean nothing: every key as YAML and as a flag; YAML itself.

The values that a key must refuse follow from its type and its bounds, so that a new setting is
tried as soon as it is declared.
"""

import os
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from isotrope.core.settings import flag
from isotrope.training.images.settings import ImageSettings
from isotrope.training.run_settings import RunSettings
from isotrope.training.settings import TrainSettings
from tests.inputs.case import Bench, Case
from tests.inputs.text import content

VERBS: dict[str, type[RunSettings]] = {"train": TrainSettings, "train-images": ImageSettings}
HUGE = "9" * 400


def _kinds(field: FieldInfo) -> tuple[list[Any], bool]:
    """Return what a field may be, and whether None is among it."""
    kind = field.annotation
    union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    kinds = typing.get_args(kind) if union else (kind,)
    return [k for k in kinds if k is not type(None)], type(None) in kinds


def _bounds(field: FieldInfo) -> dict[str, float]:
    names = ("ge", "gt", "le", "lt")
    return {
        n: value
        for m in field.metadata
        for n in names
        if (value := getattr(m, n, None)) is not None
    }


def wrong(field: FieldInfo) -> Iterator[tuple[str, str]]:
    """Yield what a field must refuse: a word for it, and the YAML of the value."""
    (kind, *_), optional = _kinds(field)
    origin = typing.get_origin(kind) or kind
    if not optional:
        yield "null", "null"
    bounds = _bounds(field)
    if "ge" in bounds:
        yield "below its bound", str(bounds["ge"] - 1)
    if "gt" in bounds:
        yield "at its bound", str(bounds["gt"])
    if "le" in bounds:
        yield "above its bound", str(bounds["le"] + 1)
    if "lt" in bounds:
        yield "at its upper bound", str(bounds["lt"])
    if origin is int:
        yield from {
            "a word": "many",
            "a fraction": "2.5",
            "a list": "[2]",
            "a mapping": "{a: 2}",
        }.items()
        yield from {
            "true": "true",
            "NaN": ".nan",
            "infinity": ".inf",
            "a date": "2020-01-01",
        }.items()
    elif origin is float:
        yield from {
            "a word": "hot",
            "a list": "[0.1]",
            "a mapping": "{a: 1}",
            "true": "true",
        }.items()
        yield from {"NaN": ".nan", "infinity": ".inf", "400 digits": HUGE}.items()
    elif origin is typing.Literal:
        yield from {"an unknown word": "nonsense", "a list": "[a]", "a mapping": "{a: 1}"}.items()
    elif origin is str:
        yield from {"a number": "5", "a list": "[a]", "a mapping": "{a: 1}", "true": "true"}.items()
        yield "a date", "2020-01-01"
    elif origin is bool:
        yield from {"a word": "maybe", "a number": "5", "a list": "[true]"}.items()
    elif origin is list:
        yield from {"a number": "5", "a mapping": "{a: 1}", "a list of lists": "[[a]]"}.items()
        yield from {"a list of numbers": "[5]", "a list of nothing": "[null]"}.items()
    elif origin is dict:
        yield from {"a word": "hot", "a list": "[1]", "a list inside": "{temperature: [1]}"}.items()


def _whole(verb: str, bench: Bench, left_out: str) -> dict[str, str]:
    """Return lines of good settings without one."""
    good = {"output": "out/run", "progress": "false"}
    if verb == "train":
        good |= {"files": f"['{bench.sentences}']", "encoder": f"'{bench.text}'"}
    else:
        good |= {"data": f"'{bench.pictures}'", "encoder": "resnet9", "width": "4"}
    return {name: value for name, value in good.items() if name != left_out}


def _keys() -> Iterator[Case]:
    for verb, cls in VERBS.items():
        for name, field in cls.ordered().items():
            for what, value in wrong(field):

                def made(
                    room: Path, bench: Bench, verb: str = verb, name: str = name, value: str = value
                ) -> Sequence[object]:
                    lines = {**_whole(verb, bench, name), flag(name): value}
                    text = "".join(f"{k}: {v}\n" for k, v in lines.items())
                    return [verb, "--config", content(room / "c.yaml", text)]

                says = flag(name).removesuffix("-settings")
                if verb == "train" and name in ("columns", "groups") and value in ("5", "[5]"):
                    says = name  # a number is a name there, and no column has it
                yield Case(f"{verb} keys/{flag(name)} is {what}", made, says)


def _flags() -> Iterator[Case]:
    """The same on the command line, where everything is text."""
    for verb, cls in VERBS.items():
        skip = {*cls.collected(), "files", "data", "plugin"}
        for name, field in cls.ordered().items():
            (kind, *_), _ = _kinds(field)
            origin = typing.get_origin(kind) or kind
            option = f"--{flag(name)}"
            if name in skip or origin is bool:
                continue

            def made(
                room: Path, bench: Bench, *more: object, verb: str = verb, name: str = name
            ) -> Sequence[object]:
                good = _whole(verb, bench, name)
                text = "".join(f"{k}: {v}\n" for k, v in good.items())
                return [verb, "--config", content(room / "c.yaml", text), *more]

            values = {int: "many", float: "nan", typing.Literal: "nonsense"}
            if origin in values:

                def typed(
                    room: Path,
                    bench: Bench,
                    made: Callable[..., Sequence[object]] = made,
                    told: str = f"{option}={values[origin]}",
                ) -> Sequence[object]:
                    return made(room, bench, told)

                yield Case(f"{verb} flags/{option} {values[origin]}", typed, option)

            def bare(
                room: Path,
                bench: Bench,
                made: Callable[..., Sequence[object]] = made,
                option: str = option,
            ) -> Sequence[object]:
                return made(room, bench, option)

            if name != "logger":  # which may be none
                yield Case(f"{verb} flags/{option} without a value", bare, option)


# what no setting can be, whatever the key
YAML: dict[str, tuple[bytes | str, str]] = {
    "nothing": ("", "must hold settings"),
    "a comment": ("# hello\n", "must hold settings"),
    "a word": ("hello\n", "must hold settings"),
    "a number": ("5\n", "must hold settings"),
    "a list": ("- a\n- b\n", "must hold settings"),
    "keys of numbers": ("1: 2\n", "must hold settings"),
    "keys of nothing": ("null: 2\n", "must hold settings"),
    "keys of lists": ("? [a]\n: b\n", "is not YAML"),
    "a key twice": ("seed: 1\nseed: 2\n", "write 'seed' once"),
    "a key twice, spelled differently": ("batch-size: 4\nbatch_size: 8\n", "twice"),
    "an unknown key": ("sede: 1\n", "sede: unknown setting (did you mean seed?)"),
    "an empty key": ("'': 1\n", "unknown setting"),
    "a key of another script": ("ѕeed: 1\n", "unknown setting"),
    "an open list": ("files: [a\n", "is not YAML"),
    "tabs": ("a:\n\tb: 1\n", "is not YAML"),
    "bad indentation": ("a: 1\n  b: 2\n", "is not YAML"),
    "two documents": ("seed: 1\n---\nseed: 2\n", "is not YAML"),
    "an unknown alias": ("seed: *one\n", "is not YAML"),
    "an unknown tag": ("seed: !mine 1\n", "is not YAML"),
    "a Python object": ("seed: !!python/object:os.PathLike {}\n", "is not YAML"),
    "a Python call": ("seed: !!python/object/apply:os.system ['touch opened']\n", "is not YAML"),
    "a Python name": ("seed: !!python/name:os.system\n", "is not YAML"),
    "a Python module": ("seed: !!python/module:this\n", "is not YAML"),
    "a Python tuple": ("seed: !!python/tuple [1]\n", "is not YAML"),
    "an impossible date": ("dev: 2020-99-99\n", "is not YAML"),
    "an impossible number": ("seed: !!int many\n", "is not YAML"),
    "an impossible fraction": ("cut: !!float much\n", "is not YAML"),
    "impossible bytes": ("dev: !!binary '%%%'\n", ""),
    "an impossible time": ("dev: !!timestamp soon\n", "is not YAML"),
    "5,000 digits": (f"seed: {'9' * 5000}\n", "is not YAML"),
    "NUL": (b"seed: 1\0\n", "is not YAML"),
    "bytes": (b"\xff" + os.urandom(64), "is not UTF-8 text"),
    "UTF-16 that is none": (b"\xff\xfea", "is not UTF-8 text"),
    "a bell": ("seed: \a\n", "is not YAML"),
    "half a character": (b"dev: \xed\xa0\x80\n", "is not UTF-8 text"),
    "half a character, escaped": ('dev: "\\ud800"\n', "UTF-8 without NUL"),
    "a mapping in itself": ("&a a: *a\n", ""),
    "a list in itself": ("files: &a [*a]\n", "more than 100,000 values"),
    "merged with itself": ("<<: &a {<<: *a}\n", ""),
    "nested without end": ("files: " + "[" * 100_000 + "\n", "nested too deeply"),
    "nested and closed": ("files: " + "[" * 5000 + "]" * 5000 + "\n", "nested too deeply"),
    "objective settings in a list": ("objective-settings: [1]\n", "objective-settings"),
    "objective settings of lists": ("objective.temperature: [1]\n", "temperature"),
    "objective settings of nothing": ("objective.temperature: null\n", ""),
    "objective settings of 400 digits": (f"objective.temperature: {HUGE}\n", "temperature"),
    "objective settings that are NaN": ("objective.temperature: .nan\n", "temperature"),
    "an unknown objective setting": ("objective.speed: 1\n", "no setting 'speed'"),
    "an unknown objective": ("objective: infonec\n", "did you mean 'infonce'?"),
    "an unknown part": ("objective.weight: soft\n", "unknown weight 'soft'"),
    "a part of too many values": ("objective.weight: softmax:1:2:3\n", "softmax:1:2:3"),
    "a part that is NaN": ("objective.dissipation: margin:nan\n", "margin"),
    "a negative temperature": ("objective.temperature: -1\n", "temperature"),
    "settings of nothing named": ("objective.: 1\n", "no setting ''"),
}


def _laughs(width: int = 10, depth: int = 12) -> str:
    """Aliases of aliases: a few lines that are 10^12 words."""
    lines = ["a0: &a0 [lol]"]
    for i in range(1, depth):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]")
    return "\n".join([*lines, f"files: *a{depth - 1}", f"seed: *a{depth - 1}", "output: out/run"])


def _yaml() -> Iterator[Case]:
    for verb in VERBS:
        for what, (text, says) in YAML.items():
            if verb == "train-images" and not what.startswith(("a Python", "an ", "5,", "a key")):
                continue  # the same reader

            def made(
                room: Path, bench: Bench, verb: str = verb, text: bytes | str = text
            ) -> Sequence[object]:
                name = str(text).partition(":")[0]
                good = _whole(verb, bench, name)
                lines = "".join(f"{k}: {v}\n" for k, v in good.items()).encode()
                whole = text if isinstance(text, bytes) else text.encode()
                plain = b":" in whole and not whole.startswith((b"1", b"null", b"?", b"a:", b"&a"))
                return [verb, "--config", content(room / "c.yaml", whole + lines * plain)]

            yield Case(f"YAML/{verb} {what}", made, says)

    def written(make: Callable[[Path], object]) -> Callable[[Path, Bench], Sequence[object]]:
        def made(room: Path, bench: Bench) -> Sequence[object]:
            make(room / "c.yaml")
            return ["train", bench.sentences, "--output", "out/run", "--config", "c.yaml"]

        return made

    def gigabytes(path: Path) -> None:
        with path.open("wb") as handle:
            handle.truncate(1 << 34)

    yield Case(
        "YAML/billion laughs",
        written(lambda path: content(path, _laughs())),
        "more than 100,000 values",
    )
    values = "".join(f"a{i}: {'x' * 1000}\n" for i in range(3000))
    yield Case("YAML/megabytes", written(lambda path: content(path, values)), "")
    yield Case("YAML/gigabytes", written(gigabytes), "has more than")
    yield Case("YAML/a pipe", written(os.mkfifo), "a pipe")
    yield Case("YAML/a device", written(lambda path: path.symlink_to("/dev/zero")), "a device")
    yield Case("YAML/a folder", written(lambda path: path.mkdir()), "is a folder")
    yield Case("YAML/a link to itself", written(lambda path: path.symlink_to(path)), "c.yaml")
    yield Case("YAML/nothing there", written(lambda path: None), "no such file")
    yield Case(
        "YAML/no file for the last flag",
        lambda room, bench: ["train", "--config"],
        "--config",
    )


def _together() -> Iterator[Case]:
    """Settings that are good one by one."""
    text: dict[str, list[object]] = {
        "precision 16 on a CPU": ["--precision", "16", "--device", "cpu"],
        "longer than the encoder": ["--max-length", 4096],
        "pooling that is none": ["--pooling", "middle"],
        "an encoder from scratch with cls": ["--encoder", "scratch", "--pooling", "cls"],
        "a batch for more devices": ["--devices", 64, "--batch-size", 2],
        "a preset that is none": ["--objective.preset", "gpt"],
        "a part of nothing": ["--objective", "negativecosine", "--objective.part", "repulsion"],
        "a ratio without a push": ["--objective", "negativecosine", "--objective.ratio", "2"],
        "a value with no name": ["--objective.", "3"],
        "a dotted flag without a value": ["--objective.temperature"],
        "a dotted flag before a flag": ["--objective.temperature", "--cut", "2"],
        "a dotted flag of another kind": ["--method.queue", "4"],
        "a plugin that is not there": ["--plugin", "nowhere.py"],
        "a plugin that is a folder": ["--plugin", "."],
        "a dev set that is not there": ["--dev", "nowhere.tsv"],
        "a dev set that is a folder": ["--dev", "."],
        "an encoder that is not there": ["--encoder", "./nowhere"],
        "an encoder above": ["--encoder", "../../nowhere"],
        "an encoder with a NUL": ["--encoder", "a\0b"],
        "an encoder of no UTF-8": ["--encoder", "\udcff"],
        "a prompt of no UTF-8": ["--query-prompt", "\udcff"],
        "a logger of no UTF-8": ["--logger", "\udcff"],
        "columns of no UTF-8": ["--columns", "\udcff"],
        "wandb that is not installed": ["--logger", "tensorboard", "wandb"],
        "a temperature at which it overflows": [
            *("--objective", "miov3", "--objective.temperature", "0.001"),
        ],
    }
    for what, told in text.items():

        def made(room: Path, bench: Bench, told: list[object] = told) -> Sequence[object]:
            base = ["train", bench.sentences, "--output", "out/run", "--encoder", bench.text]
            return [*base, "--no-progress", *told]

        yield Case(f"together/{what}", made)
    images: dict[str, list[object]] = {
        "an unknown method": ["--method", "simclear"],
        "an unknown option": ["--method.speed", "3"],
        "an option of another method": ["--method.queue", "3"],
        "an option that is NaN": ["--method", "byol", "--method.decay", "nan"],
        "an option out of range": ["--method", "byol", "--method.decay", "7"],
        "an option of words": ["--method", "byol", "--method.decay", "slow"],
        "an unknown augmentation": ["--augment", "rainbow"],
        "an unknown encoder": ["--encoder", "resnet19"],
        "a ViT of odd width": ["--encoder", "vit-tiny", "--width", 7],
        "a stem for a ViT": ["--encoder", "vit-tiny", "--stem", "cifar"],
        "an encoder of text": ["--encoder", "TEXT"],
        "an optimiser without a rate": ["--optimizer", "lars"],
        "objective of text": ["--objective", "infonec"],
        "a list of classes for an array": ["--classes", "nowhere.txt"],
        "a limit of 1": ["--limit", 1],
        "a width of a thousand million": ["--width", 10**9],
        "classes with a NUL": ["--classes", "a\0b"],
        "micro-batches and batch norm": ["--micro-batch", 1],
    }
    for what, told in images.items():

        def pictured(room: Path, bench: Bench, told: list[object] = told) -> Sequence[object]:
            told = [bench.text if one == "TEXT" else one for one in told]
            base = ["train-images", bench.pictures, "--output", "out/run", "--no-progress"]
            return [*base, "--encoder", "resnet9", "--max-steps", 1, *told]

        yield Case(f"together/images with {what}", pictured)


def cases() -> Iterator[Case]:
    """Yield them."""
    yield from _keys()
    yield from _flags()
    yield from _yaml()
    yield from _together()
