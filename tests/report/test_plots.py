"""Pictures draw every series, whatever its values, and the same data gives the same bytes."""

import itertools
import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from isotrope.report.plots import panels, styles
from isotrope.report.runs import Run, read_run
from tests.report.folders import PLOTTED, write_run


def record(name: str, steps: list[float], **series: list[float]) -> Run:
    columns = {key: np.array(values, dtype=float) for key, values in series.items()}
    return Run(name, Path(name), {"objective": name}, np.array(steps, dtype=float), columns, None)


def test_every_series_is_drawn_the_same_way_each_time(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / name)) for name in ("one", "two")]
    drawn = panels(runs)
    assert [panel.key for panel in drawn] == [*PLOTTED[:5], "trajectory", *PLOTTED[5:]]
    for panel, index in itertools.product(drawn, range(2)):
        ElementTree.fromstring(panel.svg)
        assert f'id="series-{panel.key}-{index}"' in panel.svg
        assert styles(2)[index].colour in panel.svg
    assert drawn == panels(runs)


def test_ids_are_unique_on_a_page(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / "one"))]
    roots = [ElementTree.fromstring(s) for p in panels(runs) for s in (p.svg, p.wide) if s]
    ids = [e.get("id") for root in roots for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1.0],
        [2.0, 2.0, 2.0],
        [0.0, 0.0],
        [np.nan, np.nan],
        [1.0, np.nan, np.inf, 3.0],
        [1e-9, 1e9],
    ],
    ids=["empty", "one point", "constant", "zero", "NaN", "some NaN", "wide"],
)
def test_odd_series(values: list[float]) -> None:
    keys = (*PLOTTED, "alignment", "uniformity")
    run = record("odd", list(range(len(values))), **dict.fromkeys(keys, values))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = panels([run])
    nothing = not np.isfinite(values).any()
    assert all(("not measured" in panel.svg) == nothing for panel in drawn)
    assert all(("series-" in panel.svg) != nothing for panel in drawn)


def test_long_series_are_drawn_as_running_means() -> None:
    steps = [float(step) for step in range(300)]
    noise = list(np.random.default_rng(0).normal(size=300))
    loss = panels([record("x", steps, loss=noise)])[1].svg
    assert "opacity: 0.22" in loss


def test_losses_of_different_objectives_do_not_share_an_axis() -> None:
    one, two = (record(n, [0, 1], loss=v) for n, v in (("a", [9.0, 8.0]), ("b", [0.2, 0.1])))
    assert panels([one, two])[1].title == "Loss, scaled to 0-1"
    assert panels([one])[1].title == "Loss"


def test_more_runs_than_colours_stay_apart() -> None:
    assert len(set(styles(20))) == 20
    crowd = [record(f"run {i}", [0, 1], dev=[i, i + 1.0]) for i in range(9)]
    assert "run 3" in panels(crowd[:8])[0].wide
    assert "run 3" not in panels(crowd)[0].wide


def test_names_are_neither_math_nor_markup() -> None:
    run = record("$x^$ <b>\N{SNOWMAN}\u4e2d and a long tail", [0, 1], dev=[1.0, 2.0])
    wide = panels([run])[0].wide
    assert ">$x^$ &lt;b&gt;\N{SNOWMAN}\u4e2d and a lon\u2026<" in wide
