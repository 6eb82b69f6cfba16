"""Settings: flags, YAML and Python are the same thing, and every error is one line."""

import typing
from pathlib import Path

import pytest

from isotrope.core.documents import read_yaml
from isotrope.core.errors import InputError
from isotrope.data.sources import dataset_files
from isotrope.kernels.choose import BACKENDS
from isotrope.training.settings import TrainSettings
from tests.refused import refused_setting

LEAST = {"files": "a.txt", "output": "run"}


def test_yaml_round_trip() -> None:
    import yaml

    settings = TrainSettings.read(
        {**LEAST, "batch-size": 8, "objective.temperature": "0.1", "objective.weight": "softmax:1"}
    )
    assert settings.objective_settings == {"temperature": 0.1, "weight": "softmax:1"}
    text = settings.to_yaml()
    assert "batch-size: 8" in text
    assert "objective.temperature: 0.1" in text
    assert TrainSettings.read(yaml.safe_load(text)) == settings


def test_true_in_yaml_is_what_a_flag_says() -> None:
    from isotrope.paradigm.registry import build

    settings = TrainSettings.read({**LEAST, "objective.symmetric": True})
    assert settings.objective_settings == {"symmetric": "true"}
    assert build("infonce", settings.objective_settings).two_directions
    with refused_setting("batch_size"):
        TrainSettings.read({**LEAST, "batch-size": 4, "batch_size": 4})


def test_paths_are_taken_as_text(tmp_path: Path) -> None:
    settings = TrainSettings.read({"files": tmp_path / "a.txt", "output": tmp_path / "run"})
    assert settings.files == [str(tmp_path / "a.txt")]


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    files = ["~/a.txt", "~nobody-has-this-name/a.txt", "b~.txt"]
    settings = TrainSettings.read({"files": files, "output": "~/runs", "dev": "~/dev.tsv"})
    assert settings.files == [str(tmp_path / "a.txt"), *files[1:]]
    assert (settings.output, settings.dev) == (str(tmp_path / "runs"), str(tmp_path / "dev.tsv"))
    assert dataset_files(["qa=~/a.txt"]) == {"qa": [str(tmp_path / "a.txt")]}


def test_columns_are_split_at_commas() -> None:
    settings = TrainSettings.read({**LEAST, "columns": "question, answer"})
    assert settings.columns == ["question", "answer"]


def test_the_backends_are_those_of_the_kernels() -> None:
    assert typing.get_args(TrainSettings.model_fields["backend"].annotation) == ("auto", *BACKENDS)


def test_dev_auto_holds_some_text_out() -> None:
    assert TrainSettings.read({**LEAST, "dev": "auto"}).held_out == 0.1
    assert TrainSettings.read({**LEAST, "dev": "auto", "holdout": 0.2}).held_out == 0.2
    assert TrainSettings.read(LEAST).held_out == 0


@pytest.mark.parametrize(
    ("values", "setting", "value"),
    [
        ({"output": "run"}, "files", None),
        ({"files": "a.txt"}, "output", None),
        ({**LEAST, "batch-sise": 3}, "batch_sise", None),
        ({**LEAST, "batch_size": 1}, "batch_size", 1),
        ({**LEAST, "batch_size": "many"}, "batch_size", "many"),
        ({**LEAST, "learning_rate": 0}, "learning_rate", 0),
        ({**LEAST, "views": "both"}, "views", "both"),
        ({**LEAST, "holdout": 0.9}, "holdout", 0.9),
        ({**LEAST, "epochs": float("inf")}, "epochs", float("inf")),
        ({**LEAST, "columns": 5}, "columns", 5),
        (
            {**LEAST, "objective_settings": 5, "objective.temperature": 1},
            "objective_settings",
            5,
        ),
        ({**LEAST, "objective_settings": {"weight": [1]}}, "objective.weight", [1]),
        ({**LEAST, "output": "a\0b"}, "output", "a\0b"),
        ({**LEAST, "dev": "bad\udcff.tsv"}, "dev", "bad\udcff.tsv"),
        ({**LEAST, "files": [""]}, "files", [""]),
        ({**LEAST, "files": []}, "files", []),
    ],
)
def test_bad_settings(values: dict, setting: str, value: object) -> None:
    with refused_setting(setting, value=value, source=""):
        TrainSettings.read(values)
    with refused_setting(setting, source="c.yaml"):
        TrainSettings.read(values, source="c.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\n", r"c\.yaml, line 2: correct this file; it is not YAML"),
        ("- a\n- b\n", "must hold settings"),
        ("!!python/object/apply:os.system ['true']\n", "is not YAML"),
        ("1: 2\n", "must hold settings"),
        ("[" * 1500 + "]" * 1500, "nested too deeply"),
        ("a: 1\nb: 2\na: 3\n", r"c\.yaml, line 3: write 'a' once; it is given twice"),
        ("a: &a [*a]\n", r"c\.yaml: shorten this file; it holds more than 100,000 values"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_yaml(file)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.yaml: check the path; there is no such file"):
        read_yaml(tmp_path / "none.yaml")


def test_numbers_of_any_library_are_numbers() -> None:
    import numpy as np

    settings = TrainSettings.read({**LEAST, "objective_settings": {"temperature": np.float64(0.1)}})
    assert settings.objective_settings == {"temperature": 0.1}
    assert type(settings.objective_settings["temperature"]) is float
