"""Optuna's part: every combination; draws that depend on their number alone; a record to go on."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from isotrope.core.errors import InputError
from isotrope.sweeps.search_space import read_varied
from isotrope.sweeps.spec import Sweep, Values
from isotrope.sweeps.study import JOURNAL, StageStudy, planned, tried
from isotrope.training.settings import TrainSettings

LISTED = ["learning-rate=1,2,3", "objective=infonce,met"]
RANGES = ["learning-rate=1e-5..1e-3", "batch-size=8..64", "objective=infonce,met"]


def spec(folder: Path, texts: list[str], **more: Any) -> Sweep:
    stage = [read_varied(text, TrainSettings) for text in texts]
    return Sweep(TrainSettings, {}, [stage], folder, **more)


def chosen(one: Sweep, fixed: Values = {}, **scores: float | None) -> list[dict[str, str]]:  # noqa: B006
    """Run a study to its end with the scores of a formula; return its values in their order."""
    study = StageStudy(one, one.stages[0], fixed, 1)
    every = []
    for number, values in study.settings():
        study.tell(number, scores.get(values["objective"], worth(values)))
        every.append(values)
    return every


def worth(values: Values) -> float:
    return -abs(float(values["learning-rate"]) - 3e-4) * 1e4 - (values["objective"] == "met")


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    one = spec(tmp_path, LISTED)
    every = planned(one, one.stages[0])
    assert every is not None
    assert len(every) == 6
    assert every[1] == {"learning-rate": "1", "objective": "met"}


def test_a_grid_has_no_ranges(tmp_path: Path) -> None:
    one = spec(tmp_path, RANGES)
    with pytest.raises(InputError, match=r"no values of learning-rate: .*1e-05\.\.0\.001:5"):
        planned(one, one.stages[0])


def test_draws_depend_on_their_number_alone(tmp_path: Path) -> None:
    few = spec(tmp_path, RANGES, sampler="random", trials=3)
    three, ten = planned(few, few.stages[0]), planned(replace(few, trials=10), few.stages[0])
    assert three is not None
    assert ten is not None
    assert ten[:3] == three
    assert len({tuple(values.items()) for values in ten}) == 10
    assert planned(replace(few, draws=1), few.stages[0]) != three


def test_draws_lie_in_the_range_and_can_be_typed(tmp_path: Path) -> None:
    one = spec(tmp_path, ["learning-rate=1e-5..1e-3", "batch-size=2..5"], sampler="random")
    every = planned(replace(one, trials=200), one.stages[0])
    assert every is not None
    rates = [float(values["learning-rate"]) for values in every]
    assert min(rates) >= 1e-5
    assert max(rates) <= 1e-3
    assert 70 < sum(rate < 1e-4 for rate in rates) < 130  # the geometric middle
    assert all(float(f"{rate:.4g}") == rate for rate in rates)
    assert {values["batch-size"] for values in every} == {"2", "3", "4", "5"}


def test_no_values_are_drawn_twice(tmp_path: Path) -> None:
    one = spec(tmp_path, LISTED, sampler="random", trials=5)
    drawn = planned(one, one.stages[0])
    assert drawn is not None
    assert len({str(values) for values in drawn}) == 5


def test_tpe_learns_and_goes_on_where_it_was(tmp_path: Path) -> None:
    few = spec(tmp_path, RANGES, sampler="tpe", trials=12)
    first = chosen(few)
    assert len(first) == 12
    assert all(one.holds(values[one.name]) for values in first for one in few.stages[0])
    assert chosen(few) == first  # nothing new
    more = chosen(replace(few, trials=40))
    assert more[:12] == first
    assert max(map(worth, more)) > max(map(worth, first))


def test_what_was_not_finished_comes_again(tmp_path: Path) -> None:
    one = spec(tmp_path, RANGES, sampler="tpe", trials=3)
    study = StageStudy(one, one.stages[0], {}, 1)
    begun = [next(study.settings())]
    (number, values), *rest = StageStudy(one, one.stages[0], {}, 1).settings()
    assert [(number, values)] == begun
    assert len(rest) == 2


def test_other_seeds_and_ranges_begin_with_what_was_tried(tmp_path: Path) -> None:
    """A score that Optuna has can not change: a study that differs begins anew, at the same."""
    one = spec(tmp_path, RANGES, sampler="tpe", trials=6)
    first = chosen(one)
    assert chosen(replace(one, seeds=(1, 2))) == first
    narrow = spec(tmp_path, ["learning-rate=1e-5..1e-4", *RANGES[1:]], sampler="tpe", trials=6)
    fits = [values for values in first if float(values["learning-rate"]) <= 1e-4]
    assert 0 < len(fits) < 6
    assert tried(narrow, narrow.stages[0], {}) == fits
    assert chosen(narrow)[: len(fits)] == fits
    assert tried(one, one.stages[0], {"pooling": "cls"}) == []


def test_tpe_may_look_for_the_lowest(tmp_path: Path) -> None:
    one = spec(tmp_path, RANGES, sampler="tpe", trials=40, highest=False)
    study = StageStudy(one, one.stages[0], {}, 1)
    scores = []
    for number, values in study.settings():
        scores.append(-worth(values))
        study.tell(number, scores[-1])
    assert sum(scores[20:]) < sum(scores[:20])


def test_optuna_opens_the_record_of_a_sweep(tmp_path: Path) -> None:
    chosen(spec(tmp_path, LISTED), met=None)  # as where its loss diverges
    file = str(tmp_path / JOURNAL)
    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(file))
    (name,) = optuna.get_all_study_names(journal)
    assert name.startswith("1. learning-rate, objective (dev_best) ")
    study = optuna.load_study(study_name=name, storage=journal)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "FAIL"] * 3
    assert study.best_params == {"learning-rate": "1", "objective": "infonce"}


def test_a_damaged_record_is_named_and_a_torn_one_mended(tmp_path: Path) -> None:
    one = spec(tmp_path, RANGES, sampler="tpe", trials=3)
    first = chosen(one)
    journal = tmp_path / JOURNAL
    whole = journal.read_text()
    journal.write_text(whole + '{"op_code": 4, "trial')  # killed while it wrote
    assert chosen(one) == first
    assert all(json.loads(line) for line in journal.read_text().splitlines())
    for damage in ("[]\n", "nonsense\n", "\x00\x01\n", "[" * 100_000 + "\n", '{"op_code": 99}\n'):
        journal.write_text(damage + whole)
        with pytest.raises(InputError, match=r"optuna\.log is damaged .*; move it away"):
            chosen(one)
        assert journal.read_text() == damage + whole
    journal.unlink()
    os.mkfifo(journal)  # which nobody opens at the other end
    with pytest.raises(InputError, match=r"optuna\.log is a link"):
        chosen(one)


def test_values_that_were_half_chosen_are_left(tmp_path: Path) -> None:
    """As a process leaves them that is killed between two of them."""
    one = spec(tmp_path, RANGES, sampler="tpe", trials=3)
    study = StageStudy(one, one.stages[0], {}, 1)
    study._study.ask({"batch-size": optuna.distributions.IntDistribution(8, 64)})
    assert len(chosen(one)) == 3
    assert [trial.state.name for trial in study._study.trials] == ["FAIL", *["COMPLETE"] * 3]
