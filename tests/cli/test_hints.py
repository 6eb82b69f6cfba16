"""Who types a name of another library, or one with a slip, is told ours; every example is legal."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from isotrope import fit, fit_images
from isotrope.cli.arguments import Parser
from isotrope.cli.main import guarded
from isotrope.core.errors import InputError
from isotrope.paradigm import registry
from isotrope.paradigm.declared import PARTS
from isotrope.paradigm.objective import Objective


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert guarded([str(argument) for argument in arguments]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--max-lr", "--learning-rate"),
        ("--base_lr=1e-5", "--learning-rate"),
        ("--learningrate", "--learning-rate"),
        ("--batchsize", "--batch-size"),
        ("--batch_size", "--batch-size"),
        ("--out-dir", "--output"),
        ("--backbone", "--encoder"),
        ("--grad-clip", "--clip"),
        ("--temperature", "--objective.temperature"),
        ("--resume-from-checkpoint", "--resume"),
    ],
)
@pytest.mark.parametrize("verb", ["train", "train-images"])
def test_flags(given: str, meant: str, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, verb, "text.txt", "--seed", 1, given)
    assert f"unrecognized arguments: {given} (did you mean {meant}?) (see `isotrope " in said


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--warmup-ratio", "--warmup"),
        ("--warmup_steps=10", "--warmup"),
        ("--lr-scheduler-type", "--scheduler"),
        ("--early-stopping-patience", "--patience"),
        ("--activation-checkpointing", "--gradient-checkpointing"),
    ],
)
def test_flags_of_a_training_on_text(
    given: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"(did you mean {meant}?)" in refused(capsys, "train", "text.txt", given)


def test_names_that_most_people_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("files: [a.txt]\nlr: 2e-5\nmax_grad_norm: 2\n")
    flags = ("--model", "m", "--output-dir", "o", "--precision", "bf16-mixed")
    assert guarded(["train", "--config", str(tmp_path / "c.yaml"), *flags, "--print-config"]) == 0
    shown = capsys.readouterr().out.splitlines()
    for line in (
        "encoder: m",
        "output: o",
        "precision: bf16",
        "learning-rate: 2.0e-05",
        "clip: 2.0",
    ):
        assert line in shown
    assert guarded(["train", "a.txt", "--lr", "1e-4", "--output", "o", "--print-config"]) == 0
    assert "learning-rate: 0.0001" in capsys.readouterr().out


def test_the_help_lists_the_settings_of_the_objective_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Objective, "registered", dict(Objective.registered))  # without `helped`
    own = tmp_path / "own_loss.py"
    own.write_text(
        "from isotrope.objectives import MET\n"
        "class Helped(MET, paper=MET.paper):\n"
        "    'A triplet loss.'\n"
    )
    for named in (
        ["--objective", "met"],
        ["--objective=met"],
        ["--objective=met", "--objective", "qa=infonce,nli=met"],
        ["--objective", "helped", "--plugin", str(own)],
    ):
        with suppress(SystemExit):
            guarded(["train", *named, "--help"])
        shown = capsys.readouterr().out
        assert f"settings of {'helped' if own.name in named[-1] else 'met'}:" in shown
        assert "--objective.margin X" in shown
    with suppress(SystemExit):
        guarded(["train", "--help"])
    shown = capsys.readouterr().out
    assert "--objective.margin" not in shown
    for group in ("data:", "model:", "optimisation:", "hardware:"):
        assert f"\n{group}\n" in shown


def test_flags_of_other_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "encode", "model", "text.txt", "-o", "x.npy", "--normalise")
    assert "(did you mean --normalize?)" in said
    said = refused(capsys, "encode", "model", "text.txt", "-o", "x.npy", "--xyz")
    assert "unrecognized arguments: --xyz (see" in said
    said = refused(capsys, "train-images", "digits", "--method", "mocov2", "--que", "9")
    assert "(did you mean --method.queue?)" in said


def test_yaml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key, meant in (("max-lr", "learning-rate"), ("tau", "objective.temperature")):
        (tmp_path / "c.yaml").write_text(f"files: [a.txt]\noutput: o\n{key}: 1\n")
        said = refused(capsys, "train", "--config", tmp_path / "c.yaml")
        assert f"c.yaml: {key}: unknown setting (did you mean {meant}?)" in said
    (tmp_path / "c.yaml").write_text("files: [a.txt]\noutput: o\nlr: 1e-5\nlearning-rate: 3e-5\n")
    said = refused(capsys, "train", "--config", tmp_path / "c.yaml")
    assert "leave out 'learning-rate': 'learning-rate' is set twice" in said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 1e-4}, r"^lr: unknown setting \(did you mean learning_rate\?\)"),
        ({"batchsize": 4}, r"^batchsize: unknown setting \(did you mean batch_size\?\)"),
        (
            {"temperature": 0.1},
            r"^temperature: unknown setting \(did you mean objective_settings={'temperature': ...}",
        ),
        ({"learning_rate": "high"}, "^learning_rate='high': input should be a valid number"),
        ({"output": None}, "^output:? input should be"),
    ],
)
@pytest.mark.parametrize("train", [fit, fit_images])
def test_python(settings: dict[str, Any], message: str, train: Any) -> None:
    with pytest.raises(InputError, match=message):
        train("text.txt", **{"output": "o", **settings})
    with pytest.raises(InputError, match=r"^output is missing; add it: New folder"):
        train("text.txt")


def test_a_query_may_come_after_a_flag() -> None:
    parser = Parser()
    for name, nargs in (("model", None), ("file", None), ("query", "*")):
        parser.add_argument(name, nargs=nargs)
    parser.add_argument("--columns")
    parsed = parser.parse_args(["model", "file", "--columns", "body", "close a file"])
    assert (parsed.query, parsed.columns) == (["close a file"], "body")


def test_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("sweep", "train", "text.txt", "--output", "o", "--vary")
    said = refused(capsys, *command, "temprature=1,2")
    assert "--vary: temprature: unknown setting (did you mean objective.temperature?)" in said
    assert "(did you mean learning-rate?)" in refused(capsys, *command, "lr=1e-5..1e-4")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--objective.dissipation"], "e.g. --objective.dissipation margin:0.3"),
        (["--objective.weight"], "e.g. --objective.weight softmax:0.05"),
        (["--objective.temperature", "--seed", "1"], "--objective.temperature needs a value\n"),
        (["--objective.symmetric="], "--objective.symmetric needs a value\n"),
    ],
)
def test_a_flag_without_its_value(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, "train", "text.txt", "--output", "o", *flags)


def test_every_example_is_legal() -> None:
    for key, value in PARTS.items():
        registry.build("infonce", {key: value})


def test_a_printed_configuration_leaves_to_the_recipe_what_the_command_leaves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n")
    line = ["train", str(tmp_path / "a.tsv"), "--output", str(tmp_path / "run"), "--seed", "3"]
    assert guarded([*line, "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert "recipe: auto" in printed
    assert "seed: 3" in printed
    assert "\nlearning-rate:" not in printed
    assert "# chosen when the data are read: batch-size" in printed
    (tmp_path / "c.yaml").write_text(printed)
    assert guarded(["train", "--config", str(tmp_path / "c.yaml"), "--print-config"]) == 0
    assert capsys.readouterr().out == printed
