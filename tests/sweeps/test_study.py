"""Optuna's part: every combination; draws that depend on their number alone; a record to go on."""

import json
import os
from pathlib import Path
from typing import Any

import optuna
import pytest

from isotrope.core.errors import InputError
from isotrope.sweeps.plan import grid
from isotrope.sweeps.spec import Sweep, SweepSettings, Values, plan
from isotrope.sweeps.study import JOURNAL, SweepStudy, mend
from isotrope.training.settings import TrainSettings

LISTED = ["learning-rate=1,2,3", "objective=infonce,met"]
RANGES = ["learning-rate=1e-5..1e-3", "batch-size=8..64", "objective=infonce,met"]


def spec(folder: Path, texts: list[str], **more: Any) -> Sweep:
    return plan(TrainSettings, {}, SweepSettings.read({"vary": texts, "output": folder, **more}))


def chosen(one: Sweep, **scores: float | None) -> list[dict[str, str]]:
    """Run a study to its end with the scores of a formula; return its values in their order."""
    one.chosen.output.mkdir(exist_ok=True)
    mend(one.chosen.output / JOURNAL)
    study = SweepStudy(one)
    every = []
    for number, values in study.settings():
        study.tell(number, scores.get(values["objective"], worth(values)))
        every.append(values)
    return every


def worth(values: Values) -> float:
    return -abs(float(values["learning-rate"]) - 3e-4) * 1e4 - (values["objective"] == "met")


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    every = grid(spec(tmp_path, LISTED))
    assert every is not None
    assert len(every) == 6
    assert every[1] == {"learning-rate": "1", "objective": "met"}
    assert grid(spec(tmp_path, LISTED, sampler="tpe", trials=6)) == every, "there are no others"
    assert grid(spec(tmp_path, LISTED, sampler="tpe", trials=5)) is None


def test_a_grid_has_no_ranges(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"give values, such as learning-rate=.*1e-05\.\.0\.001:5"):
        spec(tmp_path, RANGES, sampler="grid")


def test_draws_depend_on_their_number_alone(tmp_path: Path) -> None:
    three, ten, others = (
        chosen(spec(tmp_path / str(draws + trials), RANGES, trials=trials, draws=draws))
        for trials, draws in ((3, 0), (10, 0), (3, 1))
    )
    assert ten[:3] == three
    assert len({tuple(values.items()) for values in ten}) == 10
    assert others != three


def test_draws_lie_in_the_range_and_can_be_typed(tmp_path: Path) -> None:
    texts = ["learning-rate=1e-5..1e-3", "batch-size=2..5", "objective=infonce,met"]
    every = chosen(spec(tmp_path, texts, trials=100))
    rates = [float(values["learning-rate"]) for values in every]
    assert min(rates) >= 1e-5
    assert max(rates) <= 1e-3
    assert 35 < sum(rate < 1e-4 for rate in rates) < 65  # the geometric middle
    assert all(float(f"{rate:.4g}") == rate for rate in rates)
    assert {values["batch-size"] for values in every} == {"2", "3", "4", "5"}


def test_no_values_are_drawn_twice(tmp_path: Path) -> None:
    drawn = chosen(spec(tmp_path, LISTED, sampler="random", trials=5))
    assert len({str(values) for values in drawn}) == 5


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_draws_go_on_where_they_were(tmp_path: Path, sampler: str) -> None:
    first = chosen(spec(tmp_path, RANGES, sampler=sampler, trials=12))
    assert len(first) == 12
    again = spec(tmp_path, RANGES, sampler=sampler, trials=12, seeds=[1, 2])
    assert chosen(again) == first  # nothing new, whatever the seeds
    assert chosen(spec(tmp_path, RANGES, sampler=sampler, trials=15))[:12] == first


def test_tpe_learns(tmp_path: Path) -> None:
    more = chosen(spec(tmp_path, RANGES, sampler="tpe", trials=40))
    assert max(map(worth, more)) > max(map(worth, more[:12]))


def test_what_was_not_finished_comes_again(tmp_path: Path) -> None:
    one = spec(tmp_path, RANGES, sampler="tpe", trials=3)
    begun = [next(SweepStudy(one).settings())]
    (number, values), *rest = SweepStudy(one).settings()
    assert [(number, values)] == begun
    assert len(rest) == 2


def test_tpe_may_look_for_the_lowest(tmp_path: Path) -> None:
    study = SweepStudy(spec(tmp_path, RANGES, sampler="tpe", trials=40, goal="min"))
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
    assert name.startswith("learning-rate, objective (dev_best) ")
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
        with pytest.raises(
            InputError, match=r"move .*optuna\.log away and start .*: this file is damaged"
        ):
            chosen(one)
        assert journal.read_text() == damage + whole
    journal.unlink()
    os.mkfifo(journal)  # which nobody opens at the other end
    with pytest.raises(InputError, match=r"optuna\.log is a link"):
        chosen(one)


def test_values_that_were_half_chosen_are_left(tmp_path: Path) -> None:
    """As a process leaves them that is killed between two of them."""
    one = spec(tmp_path, RANGES, sampler="tpe", trials=3)
    study = SweepStudy(one)
    study.study.ask({"batch-size": optuna.distributions.IntDistribution(8, 64)})
    assert len(chosen(one)) == 3
    assert [trial.state.name for trial in study.study.trials] == ["FAIL", *["COMPLETE"] * 3]
