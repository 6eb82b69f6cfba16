"""``isotrope sweep`` end to end: trainings of a second, and what is wrong before any."""

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from isotrope.sweeps.plan import METRICS
from tests.patience import MINUTES
from tests.sweeps.pretended import pretend, score
from tests.training.conftest import sentences

QUICK = ("--encoder", "scratch", "--batch-size", 16, "--max-steps", 2, "--eval-every", 1)
VARIED = ("--vary", "objective.temperature=0.05,0.1")
VIEWS = ("--vary", "views=auto,pairs")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    file.write_text("\n".join(sentences(300)) + "\n", encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_text_from_the_command_to_the_best(run, texts: Path) -> None:
    command = ("sweep", "train", texts, "--dev", "auto", *QUICK, *VARIED, "--output", "out")
    command += ("--seeds", 42, "--metric", "seconds")
    found = run(*command)
    assert found.code == 0, found.err
    assert "objective.temperature" in found.out
    assert "[2/2] objective.temperature=0.1 seed=42: seconds" in found.err
    best = found.out.split("the best:\n")[1].splitlines()[0]
    assert best.startswith("isotrope train --config out/runs/objective.temperature=0.")
    assert best.endswith("seed=42/config.yaml --progress --output out/best")
    rows = list(csv.DictReader(Path("out/sweep.csv").read_text().splitlines()))
    assert [row["objective.temperature"] for row in rows] == ["0.05", "0.1"]
    assert (Path("out") / rows[0]["folder"] / "model").is_dir()
    assert {file.name for file in Path("out").glob("sweep.*")} == {
        f"sweep.{suffix}" for suffix in ("csv", "svg", "json")
    }
    result = json.loads((Path("out") / rows[0]["folder"] / "result.json").read_text())
    assert set(METRICS["text"]) == set(result["metrics"])

    again = run(*command, "--json")
    record = json.loads(again.out)
    assert again.err.count("\n") == 3  # what there is, is taken as it is
    lowest = min(float(row["seconds"]) for row in rows)
    assert record["metrics"]["seconds"] == pytest.approx(lowest)
    assert record["details"]["best_command"] == best
    assert run(*shlex.split(best)[1:], "--print-config").code == 0


def test_images_from_the_command_to_the_best(run) -> None:
    small = ("--encoder", "resnet9", "--width", 2, "--limit", 64, "--batch-size", 32)
    steps = ("--max-steps", 2, "--method.hidden", 8, "--method.dimension", 4, "--knn-images", 50)
    command = ("sweep", "train-images", "digits", *small, *steps, "--vary", "cut=1,3")
    command += ("--seeds", 0)
    found = run(*command, "--output", "out", "--keep", "best")
    assert found.code == 0, found.err
    assert "knn_final" in found.out
    assert "no difference beyond noise: no trial is better than the model before" in found.out
    results = list(Path("out/runs").glob("*/result.json"))
    assert len(results) == 2
    assert set(METRICS["images"]) == set(json.loads(results[0].read_text())["metrics"])
    assert len(list(Path("out/runs").glob("*/model"))) == 1


def test_a_configuration_may_hold_what_all_runs_share(run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pretend(monkeypatch)
    Path("base.yaml").write_text(
        "files: [texts.txt]\noutput: elsewhere\nseed: 3\ndev: dev.tsv\nmax-steps: 7\n"
        "objective.temperature: 0.07\n"
    )
    found = run("sweep", "train", "--config", "base.yaml", "--vary", "learning-rate=1e-5,1e-4")
    assert "--output is missing" in found.err
    flags = ("--vary", "learning-rate=1e-5,1e-4", "--seeds", 0, 1, "--output", "out")
    found = run("sweep", "train", "--config", "base.yaml", *flags)
    assert found.code == 0, found.err
    assert len(made) == 4
    config = (made[0] / "config.yaml").read_text()
    assert "objective.temperature: 0.07" in config
    assert "seed: 0" in config
    assert not Path("elsewhere").exists()


def test_a_dry_run_says_what_would_be_trained(run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pretend(monkeypatch)
    command = ("sweep", "train", "texts.txt", "--dev", "d", "--output", "out", "--dry-run")
    found = run(*command, "--vary", "learning-rate=1e-5,1e-4", "--seeds", 0, 1)
    assert found.out.splitlines() == [
        "2 trials, 4 runs, 1 at a time",
        "  learning-rate=1e-5",
        "  learning-rate=1e-4",
    ]
    found = run(*command, "--vary", "learning-rate=1e-5..1e-4", "--sampler", "tpe", "--jobs", 3)
    assert found.out.splitlines() == [
        "20 trials, 60 runs, 3 at a time",
        "  learning-rate 1e-05 .. 0.0001",
    ]
    assert made == []
    assert not Path("out").exists()
    found = run(*command, "--vary", "learning-rate=1e-5,1e-4", "--json")
    assert "not used in this run: --json (`--dry-run` prints no JSON)".replace("`", "") in found.err


def test_ranges_are_drawn_from_unless_it_is_said_otherwise(
    run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pretend(monkeypatch)
    command = ("sweep", "train", "texts.txt", "--dev", "d", "--output", "out")
    assert run(*command, "--vary", "learning-rate=1e-5..1e-4", "--trials", 3).code == 0
    assert len(made) == 9
    details = json.loads(Path("out/sweep.json").read_text())["details"]
    assert details["seeds"] == [0, 1, 2]
    assert details["sampler"] == "random"


def test_what_there_is_can_be_looked_at(run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pretend(monkeypatch)
    command = ("sweep", "train", "texts.txt", "--dev", "d", "--output", "out", *VARIED, "--show")
    found = run(*command)
    assert found.code == 0
    assert found.out.count("not run") == 2
    assert made == []
    command = ("sweep", "train", "texts.txt", "--dev", "d", "--output", "out", "--vary")
    assert run(*command, "learning-rate=1e-5..1e-4", "--trials", 23, "--seeds", 0).code == 0
    found = run(*command, "learning-rate=1e-5..1e-4", "--trials", 23, "--seeds", 0, "--show")
    assert (found.code, "(3 more with --json)" in found.out) == (0, True)


def test_a_failure_is_one_line_after_the_table(run, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda s: -1.0 if s.seed else score(s))
    command = ("sweep", "train", "texts.txt", "--dev", "d", "--output", "out", *VARIED)
    found = run(*command, "--seeds", 0, 1)
    assert found.code == 2
    assert "no such luck" in found.out
    last = found.err.splitlines()[-1]
    assert last == "isotrope: error: repeat this command to train 2 failed runs again: no such luck"
    pretend(monkeypatch, lambda s: float("inf"))
    found = run("sweep", "train", "t.txt", "--dev", "d", "--output", "other", *VARIED)
    assert (
        found.err.splitlines()[-1]
        == "isotrope: error: choose other values or another --metric: no trial has a score"
    )


@pytest.mark.parametrize("rewritten", ["texts.txt", "dev.tsv"])
def test_runs_on_other_data_are_not_ranked(run, rewritten: str) -> None:
    """A file is written anew between two calls: its path says nothing."""
    lines = sentences(60)
    Path("texts.txt").write_text("\n".join(lines))
    Path("dev.tsv").write_text("".join(f"{i % 6}\t{lines[i]}\t{lines[-i]}\n" for i in range(1, 30)))
    command = ("sweep", "train", "texts.txt", "--dev", "dev.tsv", *QUICK, "--output", "out")
    command += ("--seeds", 0, "--vary")
    assert run(*command, "epochs=1,2").code == 0
    before = Path(rewritten).read_text()
    Path(rewritten).write_text(before)  # the same once more
    assert run(*command, "epochs=1,3").code == 0
    Path(rewritten).write_text(before.replace("river", "stone"))
    found = run(*command, "epochs=1,4,5")
    assert found.code == 2
    assert found.err.splitlines()[-1] == (
        "isotrope: error: choose another --output, or delete the older run: scores on different "
        f"data cannot be ranked. The data {rewritten} changed between out/runs/epochs=4,seed=0 "
        "and out/runs/epochs=1,seed=0"
    )
    assert not Path("out/runs/epochs=5,seed=0").exists()  # the first that does not fit is the last
    assert run(*command, "epochs=4").code == 0  # a run alone is compared with nothing
    found = run(*command, "epochs=4,1", "--show")
    assert found.code == 2
    assert f"{rewritten} changed between" in found.err
    assert run(*command, "epochs=1,2", "--show").code == 0


def test_a_run_of_an_older_version_names_no_dev_data(run, texts: Path) -> None:
    Path("dev.tsv").write_text("".join(f"{i % 6}\tone {i}\ttwo {i}\n" for i in range(30)))
    command = ("sweep", "train", texts, "--dev", "dev.tsv", *QUICK, "--output", "out")
    assert run(*command, "--seeds", 0, "--vary", "epochs=1").code == 0
    file = Path("out/runs/epochs=1,seed=0/result.json")
    result = json.loads(file.read_text())
    del result["details"]["dev"]["data"]
    file.write_text(json.dumps(result))
    assert run(*command, "--seeds", 0, "--vary", "epochs=1,2").code == 0


def test_pictures_that_have_changed_are_not_ranked(run) -> None:
    for number in range(16):
        folder = Path("pictures") / ("train" if number < 12 else "test") / str(number % 2)
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (9 * number, 9, 9)).save(folder / f"{number}.png")
    flags = ("--encoder", "resnet9", "--width", 2, "--batch-size", 4, "--max-steps", 1)
    flags += ("--seeds", 0, "--metric", "loss", "--output", "out")
    command = ("sweep", "train-images", "pictures", *flags)
    assert run(*command, "--vary", "cut=1").code == 0
    Image.new("RGB", (8, 8)).save("pictures/train/0/more.png")
    found = run(*command, "--vary", "cut=1,3")
    assert found.code == 2
    assert "pictures changed between out/runs/cut=3,seed=0 and" in found.err


def test_digits_are_others_for_each_seed(run) -> None:
    flags = ("--encoder", "resnet9", "--width", 2, "--batch-size", 4, "--max-steps", 1)
    flags += ("--limit", 64, "--knn-images", 50, "--metric", "loss", "--output", "out")
    flags += ("--seeds", 0, 1, "--vary", "cut=1,3")
    assert run("sweep", "train-images", "digits", *flags).code == 0


@pytest.mark.parametrize("package", ["optuna", "matplotlib"])
def test_without_a_package_nothing_is_written(
    run, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in ("sweeps.study", "sweeps.sweep", "sweeps.tables"):
        monkeypatch.delitem(sys.modules, f"isotrope.{name}", raising=False)
    monkeypatch.delitem(sys.modules, "isotrope.reports.plots", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    found = run("sweep", "train", "texts.txt", "--dev", "d", "--output", "out", *VARIED)
    assert found.code == 2
    assert f"needs the package {package!r}" in found.err
    assert "pip install '.[sweep]'" in found.err
    assert found.err.count("\n") == 1
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the command to repeat, one of train, train-images; found ''"),
        (["trian"], "found 'trian' (did you mean 'train'?)"),
        (["train", "t.txt", "--output", "o"], "--vary is missing; give --vary NAME=VALUES"),
        (["train", "t.txt", *VARIED], "--output is missing"),
        (["train", *VARIED, "--output", "o"], "FILE is missing"),
        (["train", "t.txt", *VARIED, *VARIED, "--output", "o"], "is given twice"),
        (["train", "t.txt", "--vary", "a=1", "--output", "o"], "--vary: a: unknown setting"),
        (["train", "t.txt", *VARIED, "--output", "o", "--bath-size", "3"], "--bath-size"),
        (["train", "t.txt", *VARIED, "--output", "o", "--sampler", "gird"], "'random' or 'tpe'"),
        (["train", "t.txt", *VARIED, "--output", "o", "--trials", "3"], "a grid takes all values"),
        (
            ["train", "t.txt", *VARIED, "--output", "o", "--seeds", "1", "1"],
            "--seeds 1 1 has one seed twice",
        ),
        (["train", "t.txt", *VARIED, "--output", "o", "--jobs", "0"], "than or equal to 1"),
        (["train", "t.txt", *VARIED, "--output", "o", "--metric", "devbest"], "'dev_best'"),
        (["train", "t.txt", *VARIED, "--output", "o"], "t.txt"),
        (
            ["train", "t.txt", *VARIED, "--output", "o", "--devices", "2", "--jobs", "2"],
            "--jobs 2 (a run takes all --devices)",
        ),
        (
            ["train", "t.txt", "--vary", "epochs=1..2", "--output", "o", "--sampler", "grid"],
            "give values, such as epochs=",
        ),
        (
            ["train", "t.txt", "--vary", "epochs=1..2", "--output", "o", "--trials", "0"],
            "than or equal to 1",
        ),
        (
            ["train", "t.txt", "--vary", "epochs=1..2", "--output", "o", "--draws", "-1"],
            "than or equal to 0",
        ),
        (
            ["train", "t.txt", "--dev", "auto", "--vary", "holdout=0.1,0.2", "--output", "o"],
            "--vary holdout changes the data of --dev, and scores on different data "
            "cannot be ranked; give --dev a file instead of auto, or choose another --metric",
        ),
        (
            ["train", "t.txt", "--dev", "auto", "--output", "o", *VIEWS],
            "--vary views changes the data of --dev",
        ),
        (
            ["train", "t.txt", "--vary", "dev=a.tsv,b.tsv", "--output", "o"],
            "--vary dev changes the data of --dev, and scores on different data cannot "
            "be ranked; make one sweep for each value",
        ),
        (
            ["train-images", "digits", "--vary", "holdout=0.1,0.2", "--output", "o"],
            "--vary holdout changes the data of --metric knn_final",
        ),
        (["train-images", "nowhere", "--vary", "cut=1,3", "--output", "o"], "nowhere"),
        (["train-images", "--vary", "cut=1,3", "--output", "o"], "error: DATA is missing"),
        (["train", "t.txt", *VARIED, "--output", "o", "--show", "--metric", "devbest"], "devbest"),
    ],
)
def test_what_is_wrong_is_one_line(run, arguments: list[str], said: str) -> None:
    found = run("sweep", *arguments)
    assert found.code == 2
    assert said in found.err
    assert found.err.count("\n") == 1
    assert found.out == ""
    assert not Path("o").exists()


def test_a_score_needs_something_to_score_on(run, texts: Path) -> None:
    found = run("sweep", "train", texts, *QUICK, *VARIED, "--output", "out")
    assert found.code == 2
    assert "there is no dev score without --dev" in found.err
    assert not Path("out").exists()
    unlabelled = Path("pictures")
    unlabelled.mkdir()
    for number in range(8):
        Image.new("RGB", (8, 8), (number, 9, 9)).save(unlabelled / f"{number}.png")
    flags = ("--encoder", "resnet9", "--width", 2, "--batch-size", 4, "--vary", "cut=1,3")
    found = run("sweep", "train-images", "pictures", *flags, "--output", "out")
    assert found.code == 2
    assert "needs a test part and labels of two classes" in found.err
    found = run("sweep", "train-images", "pictures", *flags, "--output", "pictures/out")
    assert "is in the data folder pictures" in found.err


def test_gpus_are_what_is_used_by_default(run, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    monkeypatch.setattr("isotrope.training.launch.gpus", lambda: ["0", "1"])
    command = ("sweep", "train", "texts.txt", "--dev", "d", "--output", "o", *VARIED, "--dry-run")
    assert "2 at a time" in run(*command).out
    assert "1 at a time" in run(*command, "--device", "cpu").out
    assert "1 at a time" in run(*command, "--devices", 2).out


@pytest.mark.nightly
def test_two_at_a_time_and_ctrl_c(texts: Path, tmp_path: Path) -> None:
    """What is finished when it comes is kept; the same command does the rest."""
    words = ["sweep", "train", texts, "--dev", "auto", *QUICK, "--jobs", 2]
    command = [*words, "--vary", "learning-rate=1e-4,3e-4,1e-3", "--seeds", 0]
    line = [sys.executable, "-m", "isotrope", *map(str, command), "--output", "out"]
    started = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert started.stderr is not None
    while "[1/3]" not in (said := started.stderr.readline()):
        assert said
    time.sleep(0.5)
    os.killpg(started.pid, signal.SIGINT)
    _, err = started.communicate(timeout=MINUTES)
    assert started.returncode == 130
    assert "Traceback" not in err
    finished = list(Path("out/runs").glob("*/result.json"))
    assert 1 <= len(finished) < 3
    before = {file: file.stat().st_mtime_ns for file in finished}
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(Path("out/runs").glob("*/result.json"))) == 3
    assert {file: file.stat().st_mtime_ns for file in finished} == before
