"""Flags of every verb that mean nothing: unknown, of another type, out of range, missing.

What can be wrong follows from the parsers themselves; ranges that only a verb knows are listed.
"""

import typing
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from pydantic.fields import FieldInfo

from isotrope.cli.command import load
from isotrope.cli.main import VERBS
from tests.inputs.case import Bench, Case
from tests.inputs.settings import _kinds
from tests.inputs.text import content

# the verb, and what stands before its flags
COMMANDS: dict[str, list[str]] = {
    **{verb: [verb] for verb in VERBS},
    "sweep": ["sweep", "train", "SENTENCES"],
    "sweep of images": ["sweep", "train-images", "PICTURES"],
    "simulate": ["simulate", "dissipation"],
    "evaluate": ["evaluate", "TEXT"],
    "encode": ["encode", "TEXT", "SENTENCES", "--output", "out.npy"],
    "search": ["search", "TEXT", "SENTENCES", "query"],
    "diagnose": ["diagnose", "TEXT"],
    "report": ["report", "RUN"],
    "check": ["check", "infonce"],
    "audit": ["audit", "SENTENCES", "--encoder", "TEXT"],
}


@cache
def fields_of(command: str) -> dict[str, tuple[str, FieldInfo]]:
    """Return the flags of a command, each with what is shown of it and its field."""
    verb, *before = COMMANDS[command]
    run = load(verb)
    parser = run.parser(before[0]) if verb == "sweep" else run.parser()
    fields = run.settings.model_fields
    return {
        option: (action.dest, fields[action.dest])
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and action.dest in fields
    }


def _line(command: str, bench: Bench, *more: object) -> list[object]:
    def named(word: str) -> object:
        known = {"TEXT": "text", "SENTENCES": "sentences", "PICTURES": "pictures", "RUN": "run"}
        return getattr(bench, known[word]) if word in known else word

    return [*map(named, COMMANDS[command]), *more]


def _case(command: str, what: str, *more: object, says: str = "") -> Case:
    def made(room: Path, bench: Bench) -> Sequence[object]:
        return _line(command, bench, *more)

    return Case(f"flags/{command} {what}", made, says)


def _typed() -> Iterator[Case]:
    for command in COMMANDS:
        yield _case(command, "--nonsense", "--nonsense", says="--nonsense")
        yield _case(command, "--nonsense=1", "--nonsense=1", says="--nonsense")
        if command in ("train", "train-images", "sweep", "sweep of images"):
            own = {"--vary", "--sampler", "--trials", "--seeds", "--metric", "--goal", "--jobs"}
            own |= {"--draws", "--keep"}  # what trainings share is in settings.py
        else:
            own = None
        for option, (_, field) in fields_of(command).items():
            if own is not None and option not in own:
                continue
            (kind, *_), _ = _kinds(field)
            if kind is bool:
                yield _case(command, f"{option}=5", f"{option}=5", says=option)
                continue
            yield _case(command, f"{option} without a value", option, says=option)
            if kind is int:
                yield _case(command, f"{option} many", option, "many", says=option)
                yield _case(command, f"{option} 1.5", option, "1.5", says=option)
                yield _case(command, f"{option} 5,000 digits", option, "9" * 5000, says=option)
            elif kind is float:
                yield _case(command, f"{option} hot", option, "hot", says=option)
            elif typing.get_origin(kind) is typing.Literal:
                yield _case(command, f"{option} nonsense", option, "nonsense", says=option)


# verb, what is given, what is said
RANGES: list[tuple[str, list[object], str]] = [
    ("search", ["--top", 0], "--top 0: "),
    ("search", ["--top", -3], "--top -3: "),
    ("search", ["--device", "gpu9"], "is not a device"),
    ("search", ["--pooling", "middle"], "there is no pooling 'middle'"),
    ("encode", ["--device", "cuda:99"], "no such device"),
    ("encode", ["--pooling", "meen"], "did you mean 'mean'?"),
    ("encode", ["--columns", "x"], "columns have no names"),
    ("evaluate", [], "name the data to evaluate on"),
    ("evaluate", ["--knn"], "needs labelled texts"),
    ("evaluate", ["--compare", "x"], "name all models after --compare"),
    ("encode", ["--device", "tpu"], "tpu"),
    ("audit", ["--batch-size", "0"], "should be greater than or equal to 2"),
    ("audit", ["--suspect", "nan"], "--suspect nan"),
    ("audit", ["--hardness", "2"], "--hardness 2"),
    ("audit", ["--mine", "101"], "--mine 101"),
    ("audit", ["--mine", "1"], "single texts have no hard negatives"),
    ("audit", ["--seed", "-1"], "--seed -1"),
    ("audit", ["--max-length", "1"], "maximum length"),
    ("audit", ["--dev", "nowhere"], "no such file"),
    ("audit", ["--width", "4"], "--width 4 (the data are texts)"),
    ("audit", ["--objective.margin", "3"], "margin"),
    ("diagnose", ["--data", "nowhere"], "no such file"),
    ("diagnose", ["--objective.temperature", "3"], "needs --objective NAME"),
    ("diagnose", ["--objective", "nonsense"], "unknown objective"),
    ("diagnose", ["--objective", "infonce", "--objective.temperature", "0"], "temperature"),
    ("diagnose", ["--objective", "infonce", "--objective.temperature", "nan"], "temperature"),
    ("diagnose", ["--columns", "x"], "--data FILE"),
    ("diagnose", ["--plugin", "nowhere.py"], "nowhere.py"),
    ("simulate", ["--grid", 0], "grid"),
    ("simulate", ["--grid", -4], "grid"),
    ("simulate", ["--grid", 10**7], "not enough memory"),
    ("simulate", ["--negatives", 0], "negative"),
    ("simulate", ["--negatives", -1], "negative"),
    ("simulate", ["--negatives", 10**12], "negatives"),
    ("simulate", ["--batches", 0], "batches"),
    ("simulate", ["--batches", 10**12], "batches"),
    ("simulate", ["--seed", -1], "seed"),
    ("simulate", ["--objective", "nonsense"], "unknown objective"),
    ("simulate", ["--objective.margin", "3"], "needs --objective NAME"),
    ("simulate", ["--objective", "mpt", "--objective.margin", "nan"], "margin"),
    ("simulate", ["--objective", "barlowtwins"], ""),
    ("sweep", [], "--output is missing"),
    ("sweep", ["--output", "o"], "--vary is missing"),
    ("sweep", ["--output", "o", "--vary", "seed=1,2"], "--seeds 0 1 2"),
    ("sweep", ["--output", "o", "--vary", "nonsense=1"], "nonsense: unknown setting"),
    ("sweep", ["--output", "o", "--vary", "cut"], "takes NAME=VALUE"),
    ("sweep", ["--output", "o", "--vary", "cut="], "takes NAME=VALUE"),
    ("sweep", ["--output", "o", "--vary", "cut=1,1"], "listed twice"),
    ("sweep", ["--output", "o", "--vary", "cut=3..1"], "from a smaller to a larger"),
    ("sweep", ["--output", "o", "--vary", "cut=nan..1"], "from a smaller to a larger"),
    ("sweep", ["--output", "o", "--vary", "cut=1..1e999"], "from a smaller to a larger"),
    ("sweep", ["--output", "o", "--vary", "cut=1..2:x"], "write only :log, :linear, :whole"),
    ("sweep", ["--output", "o", "--vary", "cut=1..2:" + "9" * 5000], ""),
    ("sweep", ["--output", "o", "--vary", "cut=1..2:999999999"], ""),
    ("sweep", ["--output", "o", "--vary", "cut=0..2:log"], "begin a logarithmic range above 0"),
    ("sweep", ["--output", "o", "--vary", "cut=1,2", "--vary", "cut=3"], "is given twice"),
    ("sweep", ["--output", "o", "--vary", "cut=0,2"], "cut"),
    ("sweep", ["--output", "o", "--vary", "objective=nonsense,infonce"], "unknown objective"),
    ("sweep", ["--output", "o", "--vary", "cut=1,2", "--seeds", -1], "seed"),
    ("sweep", ["--output", "o", "--vary", "cut=1,2", "--seeds", 1, 1], "one seed twice"),
    ("sweep", ["--output", "o", "--vary", "cut=1,2", "--trials", 3], "a grid takes all values"),
    ("sweep", ["--output", "o", "--vary", "cut=1..2", "--trials", 0], "--trials 0"),
    ("sweep", ["--output", "o", "--vary", "cut=1,2", "--jobs", 0], "--jobs 0"),
    ("sweep", ["--output", "o", "--vary", "cut=1,2", "--draws", -1], "--draws -1"),
    ("sweep", ["--output", "o", "--vary", "cut=1,2", "--sampler", "x"], "--sampler x"),
    ("sweep", ["--output", "o", "--vary", "cut=1,2", "--metric", "x"], "x"),
    ("sweep", ["--output", "SENTENCES", "--vary", "cut=1,2", "--dev", "auto"], ""),
    ("sweep of images", ["--output", "o", "--vary", "method=simclear"], "simclear"),
    ("sweep of images", ["--output", "o", "--vary", "method.speed=1,2"], "speed"),
    ("objectives", ["nonsense"], "unknown objective"),
    ("objectives", ["infonce", "--plugin", "nowhere.py"], "nowhere.py"),
    ("check", ["nowhere.py"], "nowhere.py"),
    ("train", [], "--output is missing"),
    ("train-images", [], "--output is missing"),
]


def _ranges() -> Iterator[Case]:
    for command, told, says in RANGES:

        def made(
            room: Path, bench: Bench, command: str = command, told: list[object] = told
        ) -> Sequence[object]:
            more = [bench.sentences if one == "SENTENCES" else one for one in told]
            if command.startswith("sweep"):
                more += ["--device", "cpu"]
            return _line(command, bench, *more)

        shown = " ".join(map(str, told))[:60]
        yield Case(f"flags/{command} with {shown}", made, says)


def _verbs() -> Iterator[Case]:
    lines: dict[str, list[object]] = {
        "an unknown command": ["trian", "x.txt"],
        "a command of no UTF-8": ["\udcff"],
        "a command of nothing": [""],
        "a flag for no command": ["--nonsense"],
        "simulate nothing": ["simulate"],
        "simulate nonsense": ["simulate", "nonsense"],
        "sweep nothing": ["sweep"],
        "sweep nonsense": ["sweep", "evaluate"],
        "encode nothing": ["encode"],
        "search nothing": ["search", "a", "b"],
        "report nothing": ["report"],
        "diagnose nothing": ["diagnose"],
        "evaluate nothing": ["evaluate"],
        "two words too many": ["objectives", "a", "b"],
    }
    for what, told in lines.items():
        yield Case(f"flags/{what}", lambda room, bench, told=told: told)


def _plugins() -> Iterator[Case]:
    plugins: dict[str, tuple[str | bytes, str]] = {
        "no Python": ("this is no Python", "SyntaxError"),
        "bytes": (b"\0\xff\xfe", "failed"),
        "fails": ("raise RuntimeError('no\\nway')", "RuntimeError"),
        "exits": ("import sys; sys.exit(3)", "SystemExit"),
        "defines nothing": ("x = 1", "defines no new objective"),
        "asks for what is not there": ("import nonsense_of_nobody", "ModuleNotFoundError"),
    }
    for what, (text, says) in plugins.items():

        def made(room: Path, bench: Bench, text: str | bytes = text) -> Sequence[object]:
            return ["objectives", "--plugin", content(room / "p.py", text)]

        yield Case(f"flags/plugin that {what}", made, says)


def cases() -> Iterator[Case]:
    """Yield them."""
    yield from _typed()
    yield from _ranges()
    yield from _verbs()
    yield from _plugins()
