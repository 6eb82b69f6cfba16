"""Who types a name of another library, or one with a slip, is told ours; every example is legal."""

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from isotrope import fit, fit_images
from isotrope.cli.main import guarded
from isotrope.core.errors import InputError, NoTerms
from isotrope.core.hyper import hypers
from isotrope.paradigm import registry


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert guarded([str(argument) for argument in arguments]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--lr", "--learning-rate"),
        ("--lr=1e-5", "--learning-rate"),
        ("--learningrate", "--learning-rate"),
        ("--batchsize", "--batch-size"),
        ("--batch_size", "--batch-size"),
        ("--output-dir", "--output"),
        ("--model", "--encoder"),
        ("--max-grad-norm", "--clip"),
        ("--temperature", "--objective.temperature"),
        ("--resume-from-checkpoint", "--resume"),
    ],
)
@pytest.mark.parametrize("verb", ["train", "train-images"])
def test_flags(given: str, meant: str, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, verb, "text.txt", "--seed", 1, given)
    assert f"unrecognized arguments: {given} (did you mean {meant}?) (see `isotrope " in said


def test_flags_of_other_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "encode", "model", "text.txt", "-o", "x.npy", "--normalise")
    assert "(did you mean --normalize?)" in said
    said = refused(capsys, "encode", "model", "text.txt", "-o", "x.npy", "--xyz")
    assert "unrecognized arguments: --xyz (see" in said
    said = refused(capsys, "train-images", "digits", "--method", "mocov2", "--que", "9")
    assert "(did you mean" not in said or "--method.queue" in said


def test_yaml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key, meant in (("lr", "learning-rate"), ("tau", "objective.temperature")):
        (tmp_path / "c.yaml").write_text(f"files: [a.txt]\noutput: o\n{key}: 1\n")
        said = refused(capsys, "train", "--config", tmp_path / "c.yaml")
        assert f"c.yaml: unknown setting {key!r} (did you mean {meant!r}?)" in said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 1e-4}, r"unknown setting 'lr' \(did you mean learning_rate\?\)"),
        ({"batchsize": 4}, r"unknown setting 'batchsize' \(did you mean batch_size\?\)"),
        (
            {"temperature": 0.1},
            r"unknown setting 'temperature' \(did you mean objective_settings={'temperature': ...}",
        ),
        ({"learning_rate": "high"}, "^learning_rate: input should be a valid number"),
        ({"output": None}, "^output: input should be"),
    ],
)
@pytest.mark.parametrize("train", [fit, fit_images])
def test_python(settings: dict[str, Any], message: str, train: Any) -> None:
    with pytest.raises(InputError, match=message):
        train("text.txt", **{"output": "o", **settings})
    with pytest.raises(InputError, match=r"^output is missing: run folder"):
        train("text.txt")


def test_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("sweep", "train", "text.txt", "--output", "o", "--vary")
    said = refused(capsys, *command, "temprature=1,2")
    assert "unknown setting 'temprature' (did you mean 'objective.temperature'?)" in said
    assert "(did you mean 'learning-rate'?)" in refused(capsys, *command, "lr=1e-5..1e-4")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--objective.dissipation"], "e.g. --objective.dissipation margin:0.3"),
        (["--objective.weight"], "e.g. --objective.weight softmax:0.05"),
        (["--objective.temperature", "--seed", "1"], "e.g. --objective.temperature 0.05"),
        (["--objective", "ntxent", "--objective.temperature"], "--objective.temperature 0.1\n"),
        (["--objective=ntxent", "--objective.temperature"], "--objective.temperature 0.1\n"),
        (["--objective.symmetric="], "e.g. --objective.symmetric true"),
        (["--objective.nothing"], "--objective.nothing needs a value\n"),
    ],
)
def test_a_flag_without_its_value(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, "train", "text.txt", "--output", "o", *flags)


def test_every_example_is_legal() -> None:
    for name in registry.names():
        for key in (*hypers(registry.find(name)), "dissipation", "weight", "ratio"):
            value = registry.example(key, name)
            assert value, (name, key)
            own = key in hypers(registry.find(name))
            # not every objective has every component
            with nullcontext() if own else suppress(InputError, NoTerms):
                registry.build(name, {key: value})
    registry.build("infonce", {"dissipation": registry.example("dissipation")})
    registry.build("infonce", {"weight": registry.example("weight")})
    registry.build("infonce", {"ratio": registry.example("ratio")})
