"""A sweep trains what is missing, finds the best, and goes on from what is there."""

import csv
import io
import math
import shutil
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from optuna.distributions import IntDistribution

from isotrope.cli.sweep import _text
from isotrope.core.errors import CannotResume, InputError
from isotrope.core.image_methods import METHODS
from isotrope.core.result import Result
from isotrope.paradigm import registry
from isotrope.reports.runs import HELD_OUT_BY
from isotrope.sweeps import tables
from isotrope.sweeps.spec import Sweep, SweepSettings, plan
from isotrope.sweeps.study import JOURNAL, SweepStudy
from isotrope.sweeps.sweep import existing, sweep
from isotrope.sweeps.trials import Trial, best_of
from isotrope.training.images.settings import ImageSettings, options_of
from isotrope.training.run_settings import RunSettings
from isotrope.training.settings import TrainSettings
from tests.refused import refused_setting
from tests.sweeps.pretended import pretend, score

BASE = {"files": ["texts.txt"], "dev": "dev.tsv", "max_steps": "7"}


def spec(
    tmp_path: Path,
    texts: list[str],
    base: dict[str, Any] = BASE,
    cls: type[RunSettings] = TrainSettings,
    **more: Any,
) -> Sweep:
    own = {"seeds": [0, 1], "vary": texts, "output": tmp_path / "sweep", **more}
    return plan(cls, base, SweepSettings.read(own))


RATES = ["learning-rate=1e-5,3e-5,1e-4"]
BOTH = [*RATES, "objective.temperature=0.03,0.05"]


def test_every_setting_is_trained_with_every_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, lines = pretend(monkeypatch), list[str]()
    trials = sweep(spec(tmp_path, BOTH), lines.append)
    assert len(made) == 12
    assert made[0].name == "learning-rate=1e-5,objective.temperature=0.03,seed=0"
    assert len(trials) == 6
    best = best_of(trials, highest=True)
    assert best is not None
    assert best.values == {"learning-rate": "3e-5", "objective.temperature": "0.05"}
    assert best.score == pytest.approx(70.005)
    assert best.deviation == pytest.approx(0.01 / 2**0.5)
    assert lines[0] == "6 trials of learning-rate, objective.temperature, 12 runs"
    assert lines[-1].startswith(
        "[12/12] learning-rate=1e-4 objective.temperature=0.05 seed=1: dev_best 69.74 ("
    )


def test_an_objective_of_hard_negatives_only_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pretend(monkeypatch)
    sweep(spec(tmp_path, RATES, BASE | {"objective_settings": {"in_batch": "false"}}))
    assert len(made) == 6


def test_the_same_again_trains_nothing_and_more_trains_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pretend(monkeypatch)
    first = sweep(spec(tmp_path, RATES))
    assert sweep(spec(tmp_path, RATES)) == first
    assert len(made) == 6
    sweep(spec(tmp_path, ["learning-rate=1e-5,3e-5,1e-4,3e-4"], seeds=[0, 1, 2]))
    assert len(made) == 12
    shutil.rmtree(made[0])
    (made[1] / "result.json").unlink()  # stopped in the middle
    sweep(spec(tmp_path, RATES))
    assert len(made) == 14
    assert made[12:] == made[:2]


def test_nothing_is_trained_where_only_a_look_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pretend(monkeypatch)
    sweep(spec(tmp_path, RATES))
    trials = existing(spec(tmp_path, ["learning-rate=1e-5,7e-5"]))
    assert [trial.score is None for trial in trials] == [False, True]
    assert len(made) == 6


def test_the_best_is_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    one = spec(tmp_path, BOTH)
    best = "learning-rate=3e-5,objective.temperature=0.05,seed=0"
    assert tables.best_command(one, sweep(one)) == (
        f"isotrope train --config {tmp_path}/sweep/runs/BEST/config.yaml --progress "
        f"--output {tmp_path}/sweep/best"
    ).replace("BEST", best)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_values_may_be_drawn_and_the_draws_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: Any
) -> None:
    made = pretend(monkeypatch)
    ranges = ["learning-rate=1e-6..1e-3", "objective=infonce,met"]
    few, many = (spec(tmp_path, ranges, sampler=sampler, trials=count) for count in (5, 8))
    first = sweep(few)
    assert len(first) == 5
    assert len(made) == 10
    assert [t.values for t in sweep(few)] == [t.values for t in first]
    assert len(made) == 10
    shutil.rmtree(made[9])  # the fifth was not finished
    more = sweep(many)
    assert len(made) == 10 + 1 + 6
    assert {str(t.values) for t in first} < {str(t.values) for t in more}
    assert {str(t.values) for t in existing(many)} == {str(t.values) for t in more}


def test_tpe_tries_all_where_there_are_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pretend(monkeypatch)
    trials = sweep(spec(tmp_path, RATES, sampler="tpe", trials=3))
    assert len(trials) == 3
    assert len(made) == 6
    trials = sweep(spec(tmp_path, BOTH, sampler="tpe", trials=5))  # chooses some twice
    assert 1 < len(trials) <= 5


def test_what_diverges_is_no_error_and_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverging(settings: Any) -> float:
        bad = settings.learning_rate > 9e-5 and settings.seed == 1
        return float("inf") if bad else score(settings)

    made = pretend(monkeypatch, diverging)
    one = spec(tmp_path, RATES)
    trials = sweep(one)
    trial = trials[2]
    assert trial.score is None  # one seed of two says nothing
    assert trial.notes == {1: "training diverged: the loss is not finite at step 3"}
    assert trial.failures == []
    assert len(made) == 6
    sweep(one)
    assert len(made) == 6
    _, rows = tables.table(one, trials)
    assert rows[-1] == ["3", "1e-4", trial.notes[1], "1 of 2"]


def test_what_fails_leaves_the_others_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pretend(monkeypatch, lambda s: -1.0 if s.learning_rate > 9e-5 else score(s))  # type: ignore[attr-defined]
    trials = sweep(spec(tmp_path, RATES))
    assert trials[2].failures == ["no such luck"] * 2
    assert best_of(trials, highest=True) is trials[1]
    sweep(spec(tmp_path, RATES))
    assert len(made) == 6 + 2


def test_a_run_without_memory_fails_and_leaves_its_memory_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[weakref.ref[torch.Tensor]] = []

    def scored(settings: Any) -> float:
        assert not any(reference() is not None for reference in held)
        if settings.learning_rate > 9e-5:
            activations = [torch.ones(3)]
            activations.append(activations)  # as a trainer and its callbacks refer to each other
            held.append(weakref.ref(activations[0]))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore")
        return score(settings)

    made = pretend(monkeypatch, scored)
    values = ["learning-rate=1e-4,1e-5,3e-5"]
    trials = sweep(spec(tmp_path, values))
    assert len(held) == 2
    assert [len(trial.results) for trial in trials] == [0, 2, 2]
    assert all("(CUDA out of memory. Tried to allocate 2.00 GiB)" in x for x in trials[0].failures)
    assert best_of(trials, highest=True) is trials[2]
    pretend(monkeypatch)  # on a larger machine
    assert all(len(trial.results) == 2 for trial in sweep(spec(tmp_path, values)))
    assert len(made) == 6


def test_looking_at_a_sweep_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    one = spec(tmp_path, ["learning-rate=1e-5..1e-4", "batch-size=8..64"], trials=2)
    trials = sweep(one)
    journal = tmp_path / "sweep" / JOURNAL
    SweepStudy(one).study.ask(
        {"batch-size": IntDistribution(8, 64)}
    )  # its values are not all chosen
    with journal.open("a") as file:
        file.write('{"op_code": 5, "wor')  # and a line of it is not all written
    before = journal.read_bytes()
    assert existing(one) == trials
    other = spec(tmp_path, ["learning-rate=1e-5..1e-4"], trials=2)
    assert existing(other) == []
    assert journal.read_bytes() == before


def test_a_run_without_its_second_training_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch)
    one = spec(tmp_path, ["learning-rate=1e-5"], base={**BASE, "refit": True}, seeds=[0])
    (trial,) = sweep(one)
    file = one.folder(trial.values, 0) / "result.json"
    result = Result.load(file)
    result.metrics["dev_best_step"] = 3
    for second, finished in (
        ({}, False),
        ({"refit": {"records": 9}}, True),
        ({"refit": None}, True),
    ):
        replace(result, details=second).save(file)
        assert bool(existing(one)[0].results) is finished


@pytest.mark.parametrize("given", [{}, {"refit": True}])
def test_a_run_trains_twice_only_if_this_is_given(tmp_path: Path, given: dict[str, Any]) -> None:
    """The second training has no score to rank."""
    one = spec(tmp_path, RATES, base={**BASE, **given})
    settings = one.run({"learning-rate": "1e-5"}, 0)
    assert (settings.refit, "refit" in settings.model_fields_set) == (bool(given), True)


def test_a_bug_in_a_run_ends_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(settings: Any) -> float:
        raise RuntimeError("a bug")

    pretend(monkeypatch, broken)
    with pytest.raises(RuntimeError, match="a bug"):
        sweep(spec(tmp_path, RATES))


def test_the_lowest_may_be_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    trials = sweep(spec(tmp_path, RATES, metric="loss"))
    best = best_of(trials, highest=False)
    assert best is not None
    assert best.values == {"learning-rate": "3e-5"}
    assert best.score == pytest.approx(-70.005)


def test_only_the_models_of_the_best_may_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, lambda s: math.inf if "1e-4,seed=1" in str(s.output) else score(s))
    sweep(spec(tmp_path, RATES, keep="best"))
    runs = tmp_path / "sweep" / "runs"
    kept = sorted(folder.parent.name for folder in runs.glob("*/model"))
    assert kept == ["learning-rate=3e-5,seed=0", "learning-rate=3e-5,seed=1"]
    assert len(list(runs.glob("*/result.json"))) == 5
    assert len(list(runs.glob("*/diverged.txt"))) == 1
    others = [path for path in runs.glob("*/*/") if "3e-5" not in path.parent.name]
    assert not others  # no folder of another run is left


def test_a_failed_run_keeps_the_models_of_its_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial may be the best one after the same command has trained the run again."""
    pretend(monkeypatch, lambda s: -1.0 if "1e-5,seed=1" in str(s.output) else score(s))
    sweep(spec(tmp_path, RATES, keep="best"))
    pretend(monkeypatch, lambda s: 100.0)
    sweep(spec(tmp_path, ["learning-rate=1e-5"], keep="best"))
    models = (tmp_path / "sweep" / "runs").glob("learning-rate=1e-5*/model")
    assert sorted(folder.parent.name[-6:] for folder in models) == ["seed=0", "seed=1"]


def test_a_folder_with_a_sweep_of_other_runs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pretend(monkeypatch)
    sweep(spec(tmp_path, RATES))
    other = {**BASE, "max_steps": "8"}
    with pytest.raises(CannotResume, match=r"max_steps was 7 there, and is 8 now"):
        sweep(spec(tmp_path, RATES, base=other))
    assert len(made) == 6
    given = {**BASE, "learning_rate": "1"}
    sweep(spec(tmp_path, RATES, base=given))  # what is varied does not count
    with pytest.raises(CannotResume, match="objective_settings"):
        sweep(spec(tmp_path, RATES, base={**BASE, "objective.temperature": "0.1"}))
    sweep(spec(tmp_path, BOTH, base={**BASE, "objective.temperature": "0.1"}))


def first_run(one: Sweep) -> Any:
    return one.run({setting.name: setting.values[0] for setting in one.varied}, 0)


def test_every_option_of_a_method_can_be_varied(tmp_path: Path) -> None:
    for name in METHODS:
        usual = options_of(name)
        texts = [f"method.{key}={value}" for key, value in vars(usual).items()]
        base = {"data": "digits", "method": name}
        settings = first_run(spec(tmp_path, texts, base=base, cls=ImageSettings))
        assert settings.method_settings.keys() == vars(usual).keys()
        assert options_of(name, settings.method_settings) == usual


def test_every_setting_of_an_objective_can_be_varied(tmp_path: Path) -> None:
    for name in registry.names():
        usual = registry.build(name)
        values = dict(usual.hyperparameters())
        texts = [f"objective.{key}={value}" for key, value in values.items()]
        settings = first_run(spec(tmp_path, [*texts, "epochs=1"], {**BASE, "objective": name}))
        assert settings.objective_settings.keys() == values.keys()
        assert registry.build(name, settings.objective_settings).hyperparameters() == values


def test_data_sets_with_similar_names_are_not_mixed_up(tmp_path: Path) -> None:
    base = {**BASE, "files": ["a_b=x", "a-b=y"], "objective.a-b.margin": "1", "max-steps": "9"}
    one = spec(tmp_path, ["objective.a_b.margin=2,3", "max_steps=4,5"], base=base)
    settings = first_run(one)
    assert settings.objective_settings == {"a-b.margin": 1, "a_b.margin": 2}
    assert settings.max_steps == 4


@pytest.mark.parametrize(
    ("cls", "base", "metric", "names"),
    [
        (TrainSettings, {**BASE, "dev": "auto"}, "dev_best", ("dev", *HELD_OUT_BY)),
        (TrainSettings, BASE, "dev_best", ("dev",)),
        (ImageSettings, {"data": "d"}, "knn_best", ("data", "classes", "holdout", "knn_images")),
        (ImageSettings, {"data": "d"}, "linear", ("data", "classes", "holdout")),
    ],
)
def test_settings_that_change_the_scored_data_are_refused_in_each_spelling(
    tmp_path: Path, cls: Any, base: dict[str, Any], metric: str, names: tuple[str, ...]
) -> None:
    for name in names:
        for written in {name, name.replace("_", "-")}:
            one = spec(tmp_path, [f"{written}=1,2"], base=base, cls=cls, metric=metric)
            with refused_setting("vary", value=name.replace("_", "-")):
                sweep(one)


def test_trials_with_two_recipes_are_refused(tmp_path: Path) -> None:
    base = {**BASE, "encoder": "all-MiniLM-L6-v2", "recipe": "auto"}
    with refused_setting("vary"):
        sweep(spec(tmp_path, ["objective=ntxent,infonce"], base=base))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["learning-rate=1e-5,quick"], "^learning_rate='quick': "),
        (["learning-rate=-1..1"], "^learning_rate=-1: "),
        (["objective=infonce,mett"], "unknown objective 'mett'"),
        (["objective=met", "objective.temperature=0.1"], "met has no .*temperature"),
        (["objective.temperature=0.1,0"], "temperature"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str], said: str
) -> None:
    made = pretend(monkeypatch)
    with pytest.raises(InputError, match=said):
        sweep(spec(tmp_path, texts))
    assert made == []
    assert not (tmp_path / "sweep").exists()


def test_a_metric_that_no_run_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch)
    for act in (sweep, existing):
        with refused_setting("metric", value="dev_bets"):
            act(spec(tmp_path, RATES, metric="dev_bets"))


def test_folders_have_names_that_any_system_takes(tmp_path: Path) -> None:
    one = spec(tmp_path, RATES)
    assert one.folder({"learning-rate": "1e-5"}, 3).name == "learning-rate=1e-5,seed=3"
    odd = [one.folder({"encoder": name}, 0).name for name in ("a/b", "a_b", "x" * 300, "x" * 301)]
    assert len(set(odd)) == 4
    assert all("/" not in name and len(name) < 140 for name in odd)
    assert odd[1] == "encoder=a_b,seed=0"


def test_losses_that_are_different_functions_are_not_ranked(tmp_path: Path) -> None:
    for text in ("objective=met,mpt", "objective.temperature=0.05,0.1", "batch-size=16,32"):
        with refused_setting("vary", value=text.partition("=")[0]):
            sweep(spec(tmp_path, [text], metric="loss"))


@pytest.mark.parametrize("start", [{}, {"dev_start": 1.0}])
@pytest.mark.parametrize("seeds", [[[1], [0]], [[0, 1], [1, 2]]])
def test_runs_of_other_seeds_are_not_compared(
    tmp_path: Path, seeds: list[list[int]], start: dict[str, float]
) -> None:
    """As ``--show`` finds them while runs train in parallel."""
    one = spec(tmp_path, ["batch-size=2,3"])
    trials = [Trial({"batch-size": str(i + 2)}, "dev_best") for i in range(2)]
    for i, trial in enumerate(trials):
        for seed in seeds[i]:
            trial.take(seed, Result("train", "x", {"dev_best": 7.0 + i, **start}))
    best, said = tables.verdict(one, trials)
    assert best is None
    assert said.startswith("no difference beyond noise between batch-size=3; batch-size=2; wait")


def scored(tmp_path: Path, *scores: list[float], start: list[float] | None = None) -> Any:
    """The verdict on trials with these scores, one for each seed."""
    one = spec(tmp_path, [f"batch-size={','.join(str(i + 2) for i in range(len(scores)))}"])
    trials = [Trial({"batch-size": str(i + 2)}, "dev_best") for i in range(len(scores))]
    for trial, row in zip(trials, scores, strict=True):
        for seed, value in enumerate(row):
            more = {} if start is None else {"dev_start": start[seed]}
            trial.take(seed, Result("train", "x", {"dev_best": value, **more}))
    best, said = tables.verdict(one, trials)
    command = tables.best_command(one, trials)
    assert (command is None) is (best is None)
    assert tables.as_result(one, trials).details["noise"] == said
    return best and best.values["batch-size"], said


def test_trials_that_differ_by_noise_have_no_best(tmp_path: Path) -> None:
    best, said = scored(tmp_path, [70.0, 71.0, 69.0], [71.0, 69.5, 70.1])
    assert best is None
    assert said.startswith("no difference beyond noise between batch-size=3; batch-size=2; differ")
    assert scored(tmp_path, [70.0, 71.0, 69.0], [80.0, 81.1, 78.9])[0] == "3"
    # what a seed changes in all trials is no noise
    assert scored(tmp_path, [60.0, 71.0, 49.0], [61.0, 72.1, 50.0])[0] == "3"
    assert scored(tmp_path, [7.0, 7.0], [7.0, 7.0], [6.0, 6.0])[0] is None
    assert scored(tmp_path, [7.0], [7.0])[0] is None
    best, said = scored(tmp_path, [7.0], [8.0])
    assert (best, said) == ("3", "give several `--seeds`: with one, noise is not known")


def test_a_sweep_that_improves_nothing_has_no_best(tmp_path: Path) -> None:
    for rows in ([[7.0, 6.0], [7.0, 6.0]], [[7.0], [6.5]]):
        best, said = scored(tmp_path, *rows, start=[7.0, 6.0])
        assert best is None
        assert "no trial is better than the model before training" in said
    assert scored(tmp_path, [7.0, 7.1], [9.0, 9.1], start=[7.0, 7.0])[0] == "3"


def test_one_table_says_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    one = spec(tmp_path, RATES)
    trials = sweep(one)
    rows = list(csv.DictReader(io.StringIO(tables.as_csv(one, trials))))
    assert len(rows) == 3
    assert rows[1]["learning-rate"] == "3e-5"
    assert float(rows[1]["dev_best"]) == pytest.approx(70.005)
    assert float(rows[1]["seed 1"]) == pytest.approx(70.01)
    assert (one.chosen.output / rows[1]["folder"] / "result.json").is_file()
    _, (best, *_) = tables.table(one, trials)
    assert best == ["1", "3e-5", "70.005 ± 0.0071", "2"]
    assert "± standard deviation over the seeds" in _text(one, trials, [])
    assert "±" not in _text(one, [Trial(trials[0].values, "dev_best")], [])
    record = tables.as_result(one, trials)
    assert record.metrics["dev_best"] == pytest.approx(70.005)
    assert record.metrics["trials"] == 3
    assert record.metrics["runs"] == 6
    assert record.details["best"] == {"learning-rate": "3e-5"}


@pytest.mark.slow
@pytest.mark.parametrize("texts", [BOTH, ["weight-decay=0..1"], ["objective=infonce,met"]])
def test_pictures_of_grids_draws_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str]
) -> None:
    pretend(monkeypatch)
    more = {"trials": 4} if ".." in texts[0] else {}
    one = spec(tmp_path, texts, **more)
    svg, *_ = tables.write(one, sweep(one))
    assert svg.read_bytes().startswith(b"<?xml")
    assert svg.read_text().count('id="PathCollection_') >= len(texts)
    first = svg.read_bytes()
    tables.write(one, sweep(one))
    assert svg.read_bytes() == first
