"""Warnings are always told; how far a run is, by a bar on a terminal and by lines elsewhere."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isotrope.cli.main import guarded
from isotrope.measures.judgement import DevHistory
from isotrope.training import dev_scorer
from isotrope.training.fit_text import fit
from isotrope.training.images.train import fit_images
from isotrope.training.progress import Progress
from isotrope.training.run_log import Timer

from .conftest import IMAGES, sentences

WARNING = (
    "warning: add --dropout 0.1: without dropout, the two views of a text are equal, and the model "
    "learns nothing from positives"
)
UNUSED = "given, but not used in this run: eval_every=3 (add dev: there is no score)"


def flags(settings: dict[str, Any]) -> list[str]:
    """The settings of a run as a command line, without a bar."""
    files, given = settings["files"], dict(settings)
    del given["files"], given["progress"]
    told = [x for name, v in given.items() for x in (f"--{name.replace('_', '-')}", str(v))]
    return ["train", *files, *told, "--no-progress"]


def test_no_progress_mutes_neither_warnings_nor_the_data(
    quick: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded([*flags({**quick, "max_steps": 2}), "--dropout", "0"]) == 0
    told = capsys.readouterr().err.splitlines()
    assert WARNING in told
    assert any(re.match(r"\d+ texts \(\d+ duplicates dropped, \d+ held out\)", x) for x in told)
    assert told[0] == UNUSED.replace("eval_every=3", "--eval-every 3").replace(
        "add dev", "add --dev"
    )
    assert told[1].startswith("on cpu, precision 32")
    assert any(line.startswith("step 0 of 2: loss ") for line in told)


def test_the_limit_of_the_saved_model_is_told(
    quick: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    limits = []
    for most in (16, 128):
        own = {"max_steps": 1, "max_length": most, "output": f"{quick['output']}{most}"}
        encoder = fit(**{**quick, **own, "progress": True}).encoder
        limits.append(f"in the saved model, {encoder.limit_clause}" in capsys.readouterr().err)
    assert limits == [True, False]


def test_what_is_left_out_and_what_the_dev_score_shares_is_told(
    quick: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, hard = sentences(200), sentences(200, seed=1)
    rows = [(text, hard[i % 5], "" if i % 10 == 0 else hard[i]) for i, text in enumerate(texts)]
    rows += [(f"{text} alone", "", "") for text in texts[:7]]
    file = tmp_path / "triples.tsv"
    file.write_text("".join("\t".join(row) + "\n" for row in rows))
    settings = {**quick, "files": [str(file)], "max_steps": 2, "dev": "auto", "holdout": 0.3}
    outcome = fit(**{**settings, "progress": True})
    told = capsys.readouterr().err
    data = outcome.result.details["data"]
    count, held = data["empty_skipped"], data["holdout"]
    assert count == 7
    assert "200 pairs with 0 to 1 negatives each from 207 rows, no header, separated" in told
    assert f"separated by tabs, first record {texts[0][:30]}" in told
    assert "left out: 7 rows with an empty text (the first is line 201)" in told
    assert f"{held} held out, 7 with an empty text left out)" in told
    assert data["holdout_trained_on"] == held  # five answers, each of many rows
    assert "score, all answers are ranked" in told
    chain = [(texts[i // 2], hard[(i + 1) // 2]) for i in range(200)]  # each answer twice
    file.write_text("".join("\t".join(row) + "\n" for row in chain))
    outcome = fit(**{**settings, "progress": True, "output": tmp_path / "chain"})
    data = outcome.result.details["data"]
    shared = f"{data['holdout_trained_on']} of {data['holdout']} held-out records"
    assert data["holdout_trained_on"] > 0
    told = capsys.readouterr().err
    assert f"such as the answer, with {shared}" in told
    queries, *_ = re.findall(r"MRR@10 of (\d+) queries", told)
    assert f"{data['holdout']} held out, {queries} queries for the score)" in told


def test_without_a_terminal_a_line_for_each_logged_step_and_score(
    quick: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fit(**{**quick, "progress": True, "dev": "auto", "eval_every": 2, "log_every": 3})
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    name, number, left = (
        r"held-out MRR@10 of \d+ queries among \d+ texts",
        r"-?\d+\.\d\d",
        r"\d\d:\d\d left",
    )
    dev = rf"{name} {number}, best {number} at step \d"
    loss = r"loss \d\S*"
    expected = [
        rf"step 0 of 6: {dev}",
        rf"step 0 of 6: {loss}",
        rf"step 2 of 6: {dev}, {left}",
        rf"step 3 of 6: {loss}, {left}",
        rf"step 4 of 6: {dev}, {left}",
        rf"step 5 of 6: {loss}, {left}",  # the time of the last score
        rf"step 6 of 6: {dev}",
    ]
    assert len(told) == len(expected), told
    for line, pattern in zip(told, expected, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


def test_the_time_left_is_that_of_both_trainings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("isotrope.training.progress.time.monotonic", lambda: now[0])
    progress = Progress(steps=10, bar=False, lines=True, twice=True)
    progress.begin(0)
    for step in range(1, 11):
        now[0] += 20 if step > 1 else 200  # the first step tells nothing of the others
        progress.step(step)
        progress.silence(step)  # a line a minute, although no step is logged
    progress.logged(10, 0.5)  # ten more steps will take 200 seconds
    both = "left for both trainings"
    assert capsys.readouterr().err.splitlines() == [
        "step 1 of 10",
        f"step 3 of 10: 05:40 {both}",  # the time of two steps is known
        f"step 6 of 10: 04:40 {both}",
        f"step 9 of 10: 03:40 {both}",
        f"step 10 of 10: loss 0.5, 03:20 {both}",
    ]


@pytest.mark.parametrize(
    ("steps", "every", "start"), [(14, 4, 0), (14, 4, 4), (14, 4, 6), (12, 4, 0), (9, 0, 0)]
)
def test_the_time_left_has_the_scores_still_to_come(
    steps: int,
    every: int,
    start: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    for clock in ("monotonic", "perf_counter"):
        monkeypatch.setattr(f"isotrope.training.progress.time.{clock}", lambda: now[0])
    monkeypatch.setattr(dev_scorer, "check_finite_weights", lambda module, step: None)

    def scored() -> dict[str, float]:
        now[0] += 50
        return {}

    module: Any = SimpleNamespace(steps=steps)
    dev = dev_scorer.DevScorer(
        history=DevHistory("dev"),
        module=module,
        score=None,
        advice="",
        column="dev",
        every=every,
        curves=scored,
    )
    progress = Progress(steps=steps, bar=False, lines=True)
    log: Any = SimpleNamespace(timer=Timer(1), progress=progress, add=lambda *_: None)
    dev.attach(log, str)
    if start:  # the checkpoint has the time of a score
        dev.load_state_dict({**dev.state_dict(), "seconds": 50.0})
    dev.begin(start)
    progress.begin(start)
    told, rest = [], []
    for step in range(start + 1, steps + 1):
        now[0] += 4
        progress.step(step)
        for measure in (lambda step: None, dev.after_step):
            measure(step)
            progress.logged(step, 0.5)
            told.append(capsys.readouterr().err.strip().partition("loss 0.5, ")[2])
            rest.append(now[0])
    left = [int(now[0] - then) for then in rest]
    # the first step tells nothing of the others
    assert told[2:-1] == [f"{x // 60:02}:{x % 60:02} left" for x in left[2:-1]]
    assert told[-1] == ""


@pytest.mark.parametrize("asked", [True, False])
def test_a_long_dev_score_shows_how_far_it_is(
    quick: dict[str, Any],
    asked: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("isotrope.core.progress.LINES", 0.0)
    monkeypatch.setattr("isotrope.encoders.sentence._PIECE", 8)
    fit(**{**quick, "progress": asked, "dev": "auto", "max_steps": 1})
    told = capsys.readouterr().err
    for what, unit in (
        ("queries and documents", "tokens"),
        ("general sentences", "tokens"),
        ("held-out and trained records", "texts"),
    ):
        line = rf"^embed {what}: [\d,]+ of [\d,]+ {unit}"
        assert (re.search(line, told, re.M) is not None) is asked


def test_what_single_texts_teach_is_measured_with_progress(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("isotrope.core.progress.LINES", 0.0)
    fit(**{**quick, "progress": True, "recipe": "auto", "max_steps": 1})
    assert "measure: 64 of " in capsys.readouterr().err


def test_a_loss_is_printed_once_and_lines_are_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("isotrope.training.progress.time.monotonic", lambda: now[0])
    progress = Progress(steps=9, bar=False, lines=True)
    progress.begin(0)
    progress.logged(0, 3.5)
    for step in range(1, 7):
        now[0] += 60
        progress.step(step)
        if step == 5:
            progress.logged(4, 0.5)
        progress.silence(step)
    assert capsys.readouterr().err.splitlines() == [
        "step 0 of 9: loss 3.5",
        "step 1 of 9",
        *(f"step {step} of 9: 0{9 - step}:00 left" for step in range(2, 5)),
        "step 4 of 9: loss 0.5, 04:00 left",
        "step 6 of 9: 03:00 left",
    ]


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_a_bar(quick: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    fit(**{**quick, "progress": True, "dev": "auto", "eval_every": 3, "log_every": 1})
    told = capsys.readouterr().err
    assert "6/6" in told
    values = re.findall(r"step [036]: held-out .* (\d+\.\d\d), best \d+\.\d\d at", told)
    assert len(values) == 3
    bars = re.findall(r"loss \d\S*, dev (\d+\.\d\d)\]", told)
    assert (bars[0], bars[-1]) == (values[0], values[-1])  # also the last score
    assert " of 6: " not in told
    assert told.index("step 0: ") < told.index("0/6")  # the bar's clock leaves out this score


def test_in_python_nothing_but_warnings_may_be_asked_for(
    quick: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fit(**{**quick, "max_steps": 2, "progress": False}, dropout=0.0)
    assert capsys.readouterr().err.splitlines() == [UNUSED, WARNING]


def test_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit_images(**{**IMAGES, "output": str(tmp_path / "run"), "progress": True, "log_every": 1})
    told = capsys.readouterr().err
    assert "\ndigits: 32 images of 8 x 8" in told
    assert re.search(r"^step 3 of 3: kNN accuracy \d+\.\d\d, best", told, re.MULTILINE)


def test_a_signal_cannot_come_while_the_lock_of_the_bar_is_made() -> None:
    """tqdm.write makes it at its first call, and loses an exception that is raised meanwhile."""
    made = "from isotrope.training import progress; assert hasattr(progress.tqdm, '_lock')"
    subprocess.run([sys.executable, "-c", made], check=True)
