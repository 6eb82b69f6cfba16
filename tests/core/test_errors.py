"""Errors a user can cause: their messages, and the nearest name."""

import ast
import pickle
import sys
from pathlib import Path

import pytest

from isotrope.core import errors
from isotrope.core.errors import (
    InputError,
    MissingExtra,
    NoTerms,
    SettingError,
    nearest,
    needs_extra,
)
from isotrope.core.spelling import as_flag, as_key, named, spell, spell_all, spelled


def test_a_missing_extra_says_what_to_install() -> None:
    error = MissingExtra("pyarrow", extra="parquet")
    assert isinstance(error, InputError)
    assert isinstance(error, ValueError)
    assert str(error).startswith("run pip install '.[parquet]' in a checkout")
    assert "\n" not in str(error)


def test_each_package_that_is_imported_belongs_to_an_extra() -> None:
    own = {"isotrope", "_typeshed", "pandas"}  # pandas makes the frames that users ask for
    for file in Path(errors.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for package in {name.partition(".")[0] for name in names} - own:
                if package not in {*sys.stdlib_module_names, "torch", "numpy", "pydantic"}:
                    with pytest.raises(MissingExtra) as caught, needs_extra():
                        raise ModuleNotFoundError(name=f"{package}.part")
                    assert caught.value.package == package


def test_the_extra_of_a_package_is_the_one_named_if_it_has_it() -> None:
    for package, wanted, extra in (
        ("datasets", "image", "image"),
        ("datasets", "report", "hub"),
        ("optuna", "", "sweep"),
    ):
        with pytest.raises(MissingExtra) as caught, needs_extra(wanted):
            raise ModuleNotFoundError(name=package)
        assert caught.value.extra == extra
    for package in ("isotrope.cli", "no_such_package"):
        with pytest.raises(ModuleNotFoundError), needs_extra("report"):
            raise ModuleNotFoundError(name=package)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("infonec", " (did you mean 'infonce'?)"),
        ("barlow", " (did you mean 'barlowtwins'?)"),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_nearest(word: str, expected: str) -> None:
    assert nearest(word, ["infonce", "barlowtwins"]) == expected


def test_nearest_takes_any_iterable_and_none_is_near_in_an_empty_one() -> None:
    assert nearest("infonec", iter({"infonce": 1})) == " (did you mean 'infonce'?)"
    assert nearest("infonce", []) == ""


def test_each_surface_spells_settings_in_its_own_words() -> None:
    error = SettingError("mixes", setting="matryoshka", value=[64, 32], remedy="add `--head none`")
    assert str(error) == "matryoshka=[64, 32]: mixes; add head='none'"
    with spelled(as_flag):
        assert str(error) == "--matryoshka 64 32: mixes; add --head none"
    error = SettingError("is unknown", setting="learning_rte", source="run.yaml")
    assert str(error) == "run.yaml: learning-rte is unknown"


def test_a_problem_continues_the_name_of_the_setting_if_it_begins_with_a_verb() -> None:
    words = set()
    for file in Path(errors.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "SettingError"
                and node.args
            ):
                text = node.args[0]
                text = text.values[0] if isinstance(text, ast.JoinedStr) else text
                words |= {str(text.value).split()[0]} if isinstance(text, ast.Constant) else set()
    verbs = {word for word in words if word.endswith("s") or word == "must"} - {"this"}
    assert len(verbs) > 4
    assert verbs == errors._VERBS


def test_a_stored_text_is_spelled_like_a_message() -> None:
    stored = "to see more, add --dev (or `--holdout 0.2`), not --objective.temperature or a--b"
    assert spell_all(stored) == (
        "to see more, add dev (or holdout=0.2), not objective_settings={'temperature': ...} or a--b"
    )
    with spelled(as_flag):
        assert spell_all(stored) == stored.replace("`", "")


@pytest.mark.parametrize(
    ("name", "value", "spellings"),
    [
        (
            "learning_rate",
            1e-5,
            ("--learning-rate 1e-05", "learning-rate: 1e-05", "learning_rate=1e-05"),
        ),
        ("lora", "RANK", ("--lora RANK", "lora: RANK", "lora=RANK")),
        ("linear", False, ("--no-linear", "no-linear", "linear=False")),
        ("resume", True, ("--resume", "resume", "resume=True")),
        ("dev", None, ("--dev", "dev", "dev")),
        (
            "objective.margin",
            0.3,
            (
                "--objective.margin 0.3",
                "objective.margin: 0.3",
                "objective_settings={'margin': 0.3}",
            ),
        ),
    ],
)
def test_spellings(name: str, value: object, spellings: tuple[str, ...]) -> None:
    for spelling, expected in zip((as_flag, as_key, None), spellings, strict=True):
        assert spell(f"use {named(name, value)}, say", spelling) == f"use {expected}, say"


def test_errors_survive_the_way_between_processes() -> None:
    for error in (
        SettingError("is odd", setting="lora", value=3, remedy="leave it out"),
        InputError("a.txt, line 3 is empty", remedy="give text"),
        MissingExtra("peft", extra="lora"),
        NoTerms("DINO", "logits"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), vars(again), str(again)) == (type(error), vars(error), str(error))
