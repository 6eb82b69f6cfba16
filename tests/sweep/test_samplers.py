"""Samplers: every combination; draws that depend on their number alone; Optuna, told everything."""

import sys

import pytest

from isotrope.core.errors import InputError, MissingExtra
from isotrope.methods.settings import TrainSettings
from isotrope.sweep.samplers import Grid, Random, Tpe, Values
from isotrope.sweep.varied import read_varied

LISTED = [
    read_varied(text, TrainSettings) for text in ("learning-rate=1,2,3", "objective=infonce,met")
]
DRAWN = [
    read_varied(text, TrainSettings)
    for text in ("learning-rate=1e-5..1e-3", "batch-size=8..64", "objective=infonce,met")
]


def test_a_grid_is_every_combination() -> None:
    grid = Grid(LISTED)
    asked = [grid.ask() for _ in range(6)]
    assert asked == grid.every
    assert asked[1] == {"learning-rate": "1", "objective": "met"}
    assert grid.ask() is None


def test_a_grid_has_no_ranges() -> None:
    with pytest.raises(InputError, match=r"no values of learning-rate: .*1e-05\.\.0\.001:5"):
        Grid(DRAWN)


def test_draws_depend_on_their_number_alone() -> None:
    few, many = Random(DRAWN, 3, 0).every, Random(DRAWN, 10, 0).every
    assert many[:3] == few
    assert len({tuple(values.items()) for values in many}) == 10
    assert Random(DRAWN, 3, 1).every != few


def test_draws_end_where_there_is_nothing_new() -> None:
    drawn = Random(LISTED, 50, 0)
    assert sorted(map(str, drawn.every)) == sorted(map(str, Grid(LISTED).every))
    assert [drawn.ask() for _ in range(7)][-1] is None


def worth(values: Values) -> float:
    return -abs(float(values["learning-rate"]) - 3e-4) * 1e4 - (values["objective"] == "met")


def test_optuna_learns_and_goes_on_where_it_was() -> None:
    pytest.importorskip("optuna")
    first = Tpe(DRAWN, 12, 0, highest=True)
    told: list[tuple[Values, float | None, bool]] = []
    while (values := first.ask()) is not None:
        assert all(one.holds(values[one.name]) for one in DRAWN)
        failed = len(told) == 4
        first.tell(values, None if failed else worth(values))
        told.append((values, None if failed else worth(values), True))
    assert len(told) == 12

    unfinished: Values = {"learning-rate": "0.0002", "batch-size": "9", "objective": "met"}
    second = Tpe(DRAWN, 40, 0, highest=True, before=[*told, (unfinished, None, False)])
    asked = []
    while (values := second.ask()) is not None:
        second.tell(values, worth(values))
        asked.append(values)
    assert asked[0] == unfinished
    assert len(asked) == 40 - 12
    best = max(worth(values) for values, *_ in told)
    assert max(map(worth, asked)) > best


def test_optuna_may_look_for_the_lowest() -> None:
    pytest.importorskip("optuna")
    lowest = Tpe(DRAWN, 40, 0, highest=False)
    asked = []
    while (values := lowest.ask()) is not None:
        lowest.tell(values, -worth(values))
        asked.append(-worth(values))
    assert sum(asked[20:]) < sum(asked[:20])


def test_without_optuna_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"isotrope\[sweep\]"):
        Tpe(DRAWN, 3, 0, highest=True)
