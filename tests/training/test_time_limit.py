"""`--minutes`: the number of steps is corrected by the time that the steps of the run take."""

import math
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from isotrope.core.errors import InputError, NotUsed
from isotrope.core.metrics_log import read_log
from isotrope.core.run_folder import RunFolder
from isotrope.training import recipe_facts
from isotrope.training.auto_recipe import with_recipe
from isotrope.training.early_checks import as_begun
from isotrope.training.run import Outcome
from isotrope.training.settings import TrainSettings
from isotrope.training.text import summary, train
from isotrope.training.time_limit import Pace, TimeLimit, of_steps
from tests.training.interrupted import power_cut


class Clock:
    """A clock that moves only when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(time, "time", lambda: self.now)

    def walk(
        self, pace: Pace, steps: int, seconds: Any, scoring: float = 0.0, every: int = 0
    ) -> list[int]:
        """The numbers of steps as planned after each step, until the last step."""
        planned, step = [steps], 0
        while step < planned[-1]:
            pace.begin()
            step += 1
            self.now += seconds(step)
            planned.append(pace.fitting(step, planned[-1], scoring, every))
            if every and step % every == 0:
                self.now += scoring
        return planned


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def pace_of(clock: Clock, minutes: float, most: int) -> Pace:
    return Pace(TimeLimit(minutes, {"epochs": 1.0}, began=clock.now), most, replan=lambda steps: [])


def test_a_plan_that_was_too_short_becomes_longer(clock: Clock) -> None:
    began = clock.now
    planned = clock.walk(pace_of(clock, 10, 500), 1, lambda step: 5.0)
    assert planned[0] == 1
    assert planned[-1] == len(planned) - 1 == 108  # 90% of ten minutes, five seconds a step
    assert clock.now - began <= 600
    assert clock.walk(pace_of(clock, 10, 40), 1, lambda step: 5.0)[-1] == 40  # never above all


def test_a_plan_that_was_too_long_becomes_shorter(clock: Clock) -> None:
    planned = clock.walk(pace_of(clock, 10, 500), 500, lambda step: 5.0)
    assert planned[-1] == len(planned) - 1 == 108
    assert clock.walk(pace_of(clock, 10, 500), 500, lambda step: 5.0, scoring=270)[-1] == 54


def test_a_plan_that_is_about_right_stays(clock: Clock) -> None:
    assert {*clock.walk(pace_of(clock, 10, 500), 100, lambda step: 5.0)} == {100}


@pytest.mark.parametrize("first", [7.0, 8.0, 30.0])
def test_a_short_plan_that_is_about_right_stays(clock: Clock, first: float) -> None:
    times = {1: first, 2: 9.0}  # by the first step, there is time for 3 to 11 steps
    pace = pace_of(clock, (first + 9 + 8 * 8) / 60 / 0.9, 72)  # there is time for ten
    assert {*clock.walk(pace, 9, lambda step: times.get(step, 8.0))} == {9}


def test_all_steps_are_run_if_there_is_time(clock: Clock) -> None:
    assert clock.walk(pace_of(clock, 10, 12), 11, lambda step: 5.0)[-1] == 12


def test_a_run_that_slows_down_late_ends_in_time(clock: Clock) -> None:
    began = clock.now
    slow = clock.walk(pace_of(clock, 10, 500), 100, lambda step: 5.0 if step < 80 else 60.0)
    assert 80 < slow[-1] == len(slow) - 1 < 90
    assert clock.now - began <= 600 + 60  # the step after the limit is the last, and is logged


def test_the_rate_of_the_last_half_follows_one_plan(clock: Clock) -> None:
    # a learning rate that has nearly ended must not rise again
    planned = clock.walk(pace_of(clock, 10, 500), 100, lambda step: 5.0 if step < 40 else 0.1)
    assert {*planned} == {100}


def test_a_few_slow_steps_do_not_shorten_a_run(clock: Clock) -> None:
    """The first step compiles, and another program may disturb one of the next steps."""
    for disturbed in range(1, 50):
        slow = {1: 30.0, disturbed: 40.0}
        pace = pace_of(clock, 10, 500)
        planned = clock.walk(pace, 100, lambda step, slow=slow: slow.get(step, 5.0))
        assert 96 <= planned[-1] <= 108


@pytest.mark.parametrize(("seconds", "steps"), [(18.0, 3), (27.0, 2)])
def test_a_short_time_is_kept_if_steps_are_slow(clock: Clock, seconds: float, steps: int) -> None:
    began = clock.now
    planned = clock.walk(pace_of(clock, 1, 100), 9, lambda step: seconds)
    assert len(planned) - 1 <= steps
    assert clock.now - began <= 60


@pytest.mark.parametrize("slow", [2, 3, 10])
def test_steps_of_unequal_length_count_by_their_mean(clock: Clock, slow: int) -> None:
    """Two data sets take turns, or every tenth step saves a checkpoint."""
    began = clock.now
    planned = clock.walk(pace_of(clock, 30, 9_999), 500, lambda step: 0.5 + 4 * (step % slow == 0))
    assert 0.8 * 1_620 < clock.now - began <= 1_625
    assert planned[len(planned) // 2] == pytest.approx(1_620 / (0.5 + 4 / slow), rel=0.15)


@pytest.mark.parametrize("every", [1, 4])
def test_scores_during_the_run_have_their_time(clock: Clock, every: int) -> None:
    began = clock.now
    planned = clock.walk(pace_of(clock, 10, 500), 500, lambda step: 2.0, scoring=8.0, every=every)
    assert 525 < clock.now - began < 560
    assert planned[len(planned) * 2 // 3] == pytest.approx(532 / (2 + 8 / every), rel=0.05)


def test_a_resumed_run_has_the_time_that_is_left(clock: Clock) -> None:
    pace = pace_of(clock, 10, 500)
    assert len(clock.walk(pace, 1, lambda step: 5.0)) > 60
    clock.now -= 200
    spent = pace.state_dict()
    clock.now += 99_999
    resumed = pace_of(clock, 10, 500)
    resumed.load_state_dict(spent)
    assert resumed.until() - clock.now == 540 - spent > 100


def test_a_plan_is_read_as_it_was_written(clock: Clock, tmp_path: Path) -> None:
    limit = TimeLimit(5, {"epochs": 7.0}, frozenset({"log_every"}), True, 1.5, 0.5, clock.now)
    limit.write(file := tmp_path / "plan.json")
    clock.now += 9
    assert TimeLimit.read(file) == replace(limit, began=clock.now)
    assert TimeLimit.read(tmp_path / "none.json") is None
    file.write_text('{"minutes": "soon"}')
    with pytest.raises(InputError, match="restore"):
        TimeLimit.read(file)


def test_minutes_for_all_steps(clock: Clock) -> None:
    for second, enough in ((False, 10), (True, 20)):  # the first training may take 40%
        limit = TimeLimit(4, {"max_steps": 12}, second=second, began=clock.now - 220)
        assert limit.spent(4, 12, seconds=160, scores=50)["enough"] == enough


def test_changed_settings_give_the_number_of_steps() -> None:
    limit = TimeLimit(5, {"epochs": 7.0}, frozenset(of_steps(1)))
    for most, per_epoch in ((70, 10), (175, 25), (700, 100), (63_000, 9_001), (17_500, 2_500)):
        for steps in (*range(1, 62), most):
            found = limit.changes(steps, most, per_epoch)
            assert math.ceil(found["epochs"] * per_epoch) == steps or steps == most
            assert found | of_steps(steps) == found
    assert limit.changes(70, 70, 10)["epochs"] == 7.0
    assert TimeLimit(5, {"max_steps": 90}).changes(12, 90, 10) == {"max_steps": 12}


# runs

THINGS = ("apple", "pear", "drum", "flute", "car", "cart", "lamp", "stone", "river", "cloud")
WORDS = ("red", "green", "blue", "loud", "quiet", "fast", "slow", "warm", "cold", "bright", "dark")


@pytest.fixture
def given(tmp_path: Path, encoder_folder: str) -> dict[str, Any]:
    path = tmp_path / "pairs.tsv"
    rows = [f"a {w} {t}\tfind me the {t} that is {w}\n" for t in THINGS for w in WORDS]
    path.write_text("".join(rows))
    held = {"files": [str(path)], "output": str(tmp_path / "run"), "logger": [], "batch_size": 8}
    held |= {"encoder": encoder_folder, "epochs": 2.0, "minutes": 600.0, "refit": False}
    return {**held, "dev": "auto", "holdout": 0.3}


def rates(outcome: Outcome) -> list[float]:
    _, rows = read_log(outcome.output / "metrics.csv", complete=True)
    return [row["learning_rate"] for row in rows.values() if row.get("learning_rate") is not None]


def test_a_run_is_corrected_by_its_steps(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe_facts, "_seconds", lambda *_: 1e9)  # a record: one step at most
    settings = TrainSettings.read({**given, "refit": True})
    planned, _ = with_recipe(settings, resume=False)
    assert planned.epochs < 0.1
    outcome = train(settings)
    config = yaml.safe_load((outcome.output / "config.yaml").read_text())
    assert (config["epochs"], config["log-every"], config["prefer"]) == (2.0, 3, "trained")
    steps = outcome.result.metrics["steps"]
    assert steps == 2 * (outcome.result.details["data"]["records"] // 8)
    assert "train longer" not in outcome.result.details["next"]
    assert "refit" in outcome.result.details  # there is time for it after all
    # the remaining rates are those of a run that was planned with all steps
    other = {"output": str(tmp_path / "whole"), "refit": False}
    whole = train(TrainSettings.read({**config, **other}))
    assert rates(outcome)[-3:] == pytest.approx(rates(whole)[-3:])
    assert whole.result.metrics["steps"] == steps


def test_corrections_turn_to_the_careful_rule_at_most_once(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recipe_facts, "_seconds", lambda *_: 1e9)  # a record: one step at most
    plans = {1: 12, 2: 8, 4: 12}  # three of them on the other side of the limit
    monkeypatch.setattr(Pace, "fitting", lambda self, step, steps, *_: plans.get(step, steps))
    outcome = train(TrainSettings.read({**given, "epochs": 6.0}), lines=True)
    told = [line for line in capsys.readouterr().err.splitlines() if "has time for 8 of" in line]
    assert outcome.result.metrics["steps"] == 12
    assert len(told) == 1
    assert "--prefer best" in told[0]
    config = yaml.safe_load((outcome.output / "config.yaml").read_text())
    assert config["prefer"] == "best"


def test_scores_for_patience_follow_the_number_of_steps(
    given: dict[str, Any], encoder_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe_facts, "_seconds", lambda *_: 1e9)  # a record: one step at most
    own = {"encoder": encoder_folder, "patience": 99, "epochs": 6.0}
    outcome = train(TrainSettings.read({**given, **own}))
    config = yaml.safe_load((outcome.output / "config.yaml").read_text())
    assert config["eval-every"] == outcome.result.metrics["steps"] // 20 == 2
    _, rows = read_log(outcome.output / "metrics.csv", complete=True)
    scored = [step for step, row in rows.items() if row.get("dev") is not None]
    assert scored == [*range(0, 55, 2)]


def test_the_time_of_a_run_has_parts() -> None:
    limit = TimeLimit(4, {"max_steps": 14}, began=time.time() - 230)
    found = limit.spent(6, 14, seconds=80.0, scores=50.0)
    assert (found["minutes"], found["scores"]) == (4, 50.0)
    assert found["else"] == pytest.approx(100, abs=9)
    assert f"`--minutes {found['enough']}` has time for all" in limit.advice(6, 14, found["enough"])
    assert limit.spent(12, 14, seconds=80.0, scores=50.0)["enough"] is None


def test_a_run_ends_in_time_and_repeats_as_it_ended(
    given: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(recipe_facts, "_seconds", lambda *_: 1e-9)
    monkeypatch.setattr(recipe_facts, "_MEASURING", 0.0)
    began, ticks = time.time(), iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: began + 60.0 * next(ticks))  # a step: minutes
    # a warm-up that is longer than the run turns out to be
    outcome = train(TrainSettings.read({**given, "minutes": 16.0, "epochs": 40.0, "warmup": 20}))
    monkeypatch.undo()
    metrics, config = (
        outcome.result.metrics,
        TrainSettings.read(yaml.safe_load((outcome.output / "config.yaml").read_text())),
    )
    assert 1 < metrics["steps"] < 16
    assert config.log_every == max(1, metrics["steps"] // 5)
    assert "train longer: --minutes 16 has time for" in outcome.result.details["next"]
    spent = outcome.result.details["time"]
    assert f"; about `--minutes {spent['enough']}` " in outcome.result.details["next"]
    assert spent["scores"] > 0
    assert f"; scores {spent['scores']:.0f} s, settings, reading, saving " in summary(outcome)
    told = capsys.readouterr().err
    assert "--minutes 16 has time for" in told
    assert re.search(rf" steps; now `?(--epochs |epochs=){config.epochs}\b", told)
    assert "about `--minutes" not in told  # the advice comes once, after the run
    _, rows = read_log(outcome.output / "metrics.csv", complete=True)
    assert rows[metrics["steps"] - 1]["loss"] is not None  # the last step is logged
    assert rows[metrics["steps"]]["dev"] is not None
    again = train(TrainSettings.read({**config.model_dump(), "output": str(tmp_path / "again")}))
    assert again.result.metrics["steps"] == metrics["steps"]
    assert as_begun(TrainSettings.read({**given, "minutes": 16.0})).epochs == config.epochs


def test_a_resumed_run_continues_its_plan_and_its_time(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe_facts, "_seconds", lambda *_: 1e-9)
    monkeypatch.setattr(recipe_facts, "_MEASURING", 0.0)
    began, ticks = time.time(), iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: began + 60.0 * next(ticks))  # a step: minutes
    settings = TrainSettings.read({**given, "minutes": 16.0, "epochs": 40.0, "refit": True})
    with power_cut(3):
        train(settings.model_copy(update={"checkpoint_every": 1}))
    next_day = next(ticks) + 1_000  # the time between the commands does not count
    monkeypatch.setattr(time, "time", lambda: began + 60.0 * (next_day + next(ticks)))
    resumed = train(settings, resume=True)
    metrics, details = resumed.result.metrics, resumed.result.details
    assert 3 < metrics["steps"] < 16
    assert "train longer: --minutes 16 has time for" in details["next"]
    assert metrics["seconds"] + details["time"]["else"] < 1_000 * 60
    assert details["refit"] is None  # there is no time for a second training
    assert not RunFolder(resumed.output).plan.exists()


@pytest.mark.parametrize("columns", ["texts", "scored pairs"])
def test_a_run_with_other_losses_than_that_of_pairs_is_resumed(
    columns: str,
    given: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recipe_facts, "_seconds", lambda *_: 1e9)  # a record: one step at most
    path = tmp_path / f"{columns}.tsv"
    header = "text" if columns == "texts" else "sentence1\tsentence2\tscore"
    rows = [f"a {w} {t} is not the same as a {t}" for t in THINGS for w in WORDS]
    if columns != "texts":
        rows = [f"{row}\tfind me {row[-4:]}\t{i % 5}" for i, row in enumerate(rows)]
    path.write_text("\n".join([header, *rows]) + "\n")
    settings = TrainSettings.read({**given, "files": [str(path)]})
    outcome = train(settings)
    config = TrainSettings.read(yaml.safe_load((outcome.output / "config.yaml").read_text()))
    assert config.epochs == 2.0  # corrected by the first steps
    assert as_begun(settings) == config
    for same in (settings, config):
        (outcome.output / "result.json").unlink()
        again = train(same, resume=True)
        assert again.result.details["model"] == outcome.result.details["model"]
    other = TrainSettings.read({**config.model_dump(exclude_none=True), "output": "none"})
    monkeypatch.setattr(recipe_facts, "_seconds", lambda *_: 1e-9)
    assert with_recipe(other, resume=False)[0].model_dump(exclude={"output"}) == (
        config.model_dump(exclude={"output"})
    )
    with pytest.raises(NotUsed):
        with_recipe(other.model_copy(update={"objective": "barlowtwins"}), resume=False)


@pytest.mark.slow
def test_all_processes_take_the_same_number_of_steps(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe_facts, "_seconds", lambda *_: 1e9)
    outcome = train(TrainSettings.read({**given, "devices": 2, "device": "cpu"}))
    records = outcome.result.details["data"]["records"]
    assert outcome.result.metrics["steps"] == 2 * (records // 8)
