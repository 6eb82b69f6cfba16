"""A setting that a run does not use is reported, whatever its verb."""

import ast
import inspect
import itertools
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import isotrope
from isotrope.cli.command import load
from isotrope.cli.main import VERBS
from isotrope.core.errors import NotUsed
from isotrope.core.settings import Settings, Used, extra_of
from isotrope.core.spelling import as_flag, spelled
from isotrope.evaluation.options import Evaluation
from isotrope.sweeps.spec import SweepSettings

SOURCE = Path(isotrope.__file__).parent
MODELS: list[type[Settings]] = [
    *dict.fromkeys(load(verb).settings for verb in VERBS),
    Evaluation,
    SweepSettings,
]
RECORDS = [
    pytest.param(model, name, used, id=f"{model.__name__}-{name}-{used.otherwise[:20]}")
    for model in MODELS
    for name, field in model.model_fields.items()
    for used in extra_of(field).get("used", ())
]
SEEN = [
    ("train", "freeze", "lora"),
    ("train", "groups", "pushes"),
    ("train", "matryoshka", "dimension"),
    ("train", "lora_alpha", "lora"),
    ("train", "refit", "dev"),
    ("train", "sampling", "files"),
    ("train", "objective_settings", "loss"),
    ("train-images", "width", "scratch"),
    ("simulate", "batches", "kind"),
    ("simulate", "gated", "kind"),
    ("simulate", "part", "kind"),
    ("evaluate", "mode", "transfer"),
    ("audit", "hardness", "mine"),
    ("audit", "columns", "pictures"),
    ("encode", "jobs", "pictures"),
    ("search", "embeddings", "pictures"),
    ("sweep", "draws", "drawn"),
]


def values_of(model: type[Settings], name: str) -> Iterator[Any]:
    """Yield values that a setting may have, or a fact."""
    if name not in model.model_fields:
        yield from (None, False, True, 64, "file", "matrix", "cpu", "mps")
        return
    field = model.model_fields[name]
    if not field.is_required():
        yield field.get_default(call_default_factory=True)
    kind = field.annotation
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kind = next(k for k in typing.get_args(kind) if k is not types.NoneType)
        yield None if not field.is_required() else "some"
    origin = typing.get_origin(kind) or kind
    if origin is typing.Literal:
        yield from typing.get_args(kind)
    samples: dict[Any, list[Any]] = {
        bool: [False, True],
        int: [0, 1, 3],
        float: [0.25],
        str: ["scratch", "some.py"],
        Path: [Path("some")],
        list: [[64]] if typing.get_args(kind) == (int,) else [["a.txt"], ["b=a.txt", "c=b.txt"]],
        dict: [{"inner": 3.0}],
    }
    yield from samples.get(origin, [])


def cases(model: type[Settings], name: str, used: Used) -> Iterator[tuple[bool, Settings, dict]]:
    """Yield settings with this one given, and facts, by whether the condition holds."""
    default = model.model_fields[name].get_default(call_default_factory=True)
    fields = model.model_fields.items()
    required = {key: next(values_of(model, key)) for key, f in fields if f.is_required()}
    given = [value for value in values_of(model, name) if value != default]
    others = [other for other in inspect.signature(used.when).parameters if other != name]
    for value, *more in itertools.product(given, *(values_of(model, o) for o in others)):
        known = {name: value, **dict(zip(others, more, strict=True))}
        own = {key: one for key, one in known.items() if key in model.model_fields}
        facts = {key: one for key, one in known.items() if key not in own}
        try:
            holds = used.when(
                **{key: known[key] for key in inspect.signature(used.when).parameters}
            )
        except (AttributeError, TypeError):  # a value of another kind than the fact has
            continue
        yield bool(holds), model.model_construct(**required | own), facts


def said(settings: Settings, facts: dict) -> str | None:
    """Return what is reported; None if a fact is of another kind than one of the conditions has."""
    notes: list[str] = []
    try:
        with spelled(as_flag):
            settings.check_used(notes.append, **facts)
    except NotUsed as error:
        return error.text()
    except (AttributeError, TypeError):
        return None
    return "".join(notes)


@pytest.mark.parametrize(("model", "name", "used"), RECORDS)
def test_what_is_not_used_is_reported(model: type[Settings], name: str, used: Used) -> None:
    words = max(re.split(r"`.*?`|{.*?}", used.otherwise), key=len)
    tried = {True: 0, False: 0}
    for holds, settings, facts in cases(model, name, used):
        if (report := said(settings, facts)) is None:
            continue
        tried[holds] += 1
        shown = name.removesuffix("_settings").replace("_", "-")  # or the prefix of its keys
        assert words not in report if holds else f"--{shown}" in report
    assert tried[True], "nothing makes it used"
    assert tried[False], "nothing makes it unused"


def test_a_setting_may_have_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that lists every setting is no list of choices."""
    settings = load("train").settings.read({"files": "a.txt", "output": "o", "freeze": "none"})
    settings.check_used(pushes=False)
    assert capsys.readouterr().err == ""


def test_notes_do_not_stop_and_errors_list_each_setting() -> None:
    notes: list[str] = []
    least = {"files": "a.txt", "output": "o"}
    train = load("train").settings
    train.read({**least, "freeze": "embeddings", "lora": 8}).check_used(notes.append)
    assert notes == [
        "given, but not used in this run: freeze='embeddings' (LoRA already freezes the encoder)"
    ]
    wrong = train.read({**least, "lora_alpha": 8, "lora_targets": "a,b", "refit": True})
    with pytest.raises(NotUsed) as caught:
        wrong.check_used(notes.append)
    assert (caught.value.setting, caught.value.value) == ("lora_alpha", 8)
    assert "lora_targets=" in str(caught.value)
    assert "refit" not in str(caught.value)
    assert len(notes) == 1


@pytest.mark.parametrize(("verb", "name", "other"), SEEN)
def test_the_cases_that_were_seen_have_a_condition(verb: str, name: str, other: str) -> None:
    conditions = extra_of(load(verb).settings.model_fields[name])["used"]
    assert any(other in inspect.signature(used.when).parameters for used in conditions)


def test_every_condition_is_looked_at() -> None:
    """Its names are settings of some verb, or facts that a call of ``check_used`` gives."""
    trees = [ast.parse(file.read_bytes()) for file in SOURCE.rglob("*.py")]
    facts = {
        keyword.arg
        for tree in trees
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "check_used"
        for keyword in call.keywords
    }
    fields = {name for model in MODELS for name in model.model_fields}
    names = {n for p in RECORDS for n in inspect.signature(p.values[2].when).parameters}
    assert facts <= names <= facts | fields


def test_a_setting_without_condition_is_read() -> None:
    """Its name is an attribute or a parameter in the sources."""
    read = {
        node.attr if isinstance(node, ast.Attribute) else node.arg
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, (ast.Attribute, ast.arg))
    }
    for model in MODELS:
        assert {*model.model_fields} <= read
