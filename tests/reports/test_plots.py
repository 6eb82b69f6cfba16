"""Pictures draw every series, whatever its values, and the same data gives the same bytes."""

import itertools
import json
import re
import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.ticker import StrMethodFormatter

from isotrope.reports.panels import ReportPanel, panel, sections
from isotrope.reports.pictures import write_pictures
from isotrope.reports.plots import _TICK, _smooth, multiple, styles
from isotrope.reports.quantities import QUANTITIES, SECTIONS
from isotrope.reports.runs import Run, read_run
from tests.reports.folders import (
    COLUMNS,
    OLD,
    OLD_PLOTTED,
    PLOTTED,
    write_image_run,
    write_run,
)


def panels(runs: list[Run]) -> list[ReportPanel]:
    return [drawn for _, of_section, _ in sections(runs) for drawn in of_section]


def record(name: str, steps: list[float], **series: list[float]) -> Run:
    columns = {key: np.array(values, dtype=float) for key, values in series.items()}
    return Run(name, Path(name), {"objective": name}, np.array(steps, dtype=float), columns, None)


def one(key: str, runs: list[Run]) -> ReportPanel:
    drawn = panel(next(quantity for quantity in QUANTITIES if quantity.key == key), runs)
    assert drawn is not None
    return drawn


def test_every_series_is_drawn_the_same_way_each_time(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / name)) for name in ("one", "two")]
    drawn = panels(runs)
    assert [shown.key for shown in drawn] == list(PLOTTED)
    for shown, index in itertools.product(drawn, range(2)):
        ElementTree.fromstring(shown.svg)
        assert f'id="series-{shown.key}-{index}"' in shown.svg
        assert styles(2)[index].colour in shown.svg
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
@pytest.mark.slow
def test_odd_series(values: list[float]) -> None:
    keys = COLUMNS.split(",")[2:]
    run = record("odd", list(range(len(values))), **dict.fromkeys(keys, values))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = panels([run])
    if not np.isfinite(values).any():
        assert drawn == []
        return
    assert [shown.key for shown in drawn] == list(PLOTTED)
    for shown in drawn:
        assert f'id="series-{shown.key}-0"' in shown.svg
        assert "nan" not in shown.svg


def test_what_no_run_has_measured_is_named(tmp_path: Path) -> None:
    old = read_run(write_run(tmp_path / "old", columns=OLD))
    assert [shown.key for shown in panels([old])] == list(OLD_PLOTTED)
    absent = {section.title: names for section, _, names in sections([old])}
    assert absent["Training"] == []
    assert absent["Angles"] == [
        "Angles to positive and negatives",
        "Distance gap",
        "Opposite halves",
    ]
    new = read_run(write_run(tmp_path / "new"))
    assert one("angles", [old, new]).without == ("old",)
    assert one("loss", [old, new]).without == ()


def test_bands_and_second_lines(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / name)) for name in ("one", "two")]
    angles = one("angles", runs)
    assert angles.names == ("positive", "negatives")
    assert angles.svg.count("fill-opacity: 0.2") == 4
    for name in ("0", "0-1", "1", "1-1"):
        assert f'id="series-angles-{name}"' in angles.svg
    assert ">π/2<" in angles.svg
    assert one("loss", runs).names == ()
    crowd = [record(str(i), [0, 1], positive_mean=[1, 1], positive_std=[1, 1]) for i in range(4)]
    assert "fill-opacity: 0.2" not in one("angles", crowd).svg


def test_scales_find_the_points_again() -> None:
    """Where the page's script puts a point is where the picture has it."""
    runs = [
        record(n, [0, 50, 100], loss=v, gradient_norm=g, alignment=[0.1, 0.2, 0.3], uniformity=v)
        for n, v, g in (("a", [9, 8.5, 8], [1, 10, 100]), ("b", [0.2, 0.1, 0.3], [3, 200, 1]))
    ]
    for key in ("loss", "gradient_norm", "trajectory"):
        shown = one(key, runs)
        scale = shown.scales[key]
        assert scale.log == (key == "gradient_norm")
        assert len(scale.lines) == 2
        for line in scale.lines:
            run = runs[line["run"]]
            x = run.series["alignment"] if scale.across == "alignment" else run.steps
            y = run.series[line["column"]]
            place = re.search(rf'id="series-{key}-{line["run"]}"> <path d="([^"]*)"', shown.svg)
            assert place
            drawn = np.array(re.findall(r"[ML] ([\d.]+) ([\d.]+)", place[1]), dtype=float)
            expected = (
                scale.x[0] + scale.x[1] * x,
                line["y"][0] + line["y"][1] * (np.log10(y) if scale.log else y),
            )
            np.testing.assert_allclose(drawn.T, expected, atol=0.02)
            left, top, right, bottom = scale.box
            assert ((drawn > (left, top)) & (drawn < (right, bottom))).all()


def test_long_series_are_drawn_as_running_means() -> None:
    steps = [float(step) for step in range(300)]
    noise = list(np.random.default_rng(0).normal(size=300))
    loss = one("loss", [record("x", steps, loss=noise)]).svg
    assert "opacity: 0.22" in loss


def test_losses_of_different_objectives_do_not_share_an_axis() -> None:
    a, b = (record(n, [0, 1], loss=v) for n, v in (("a", [9.0, 8.0]), ("b", [0.2, 0.1])))
    assert one("loss", [a, b]).title == "Loss, scaled to 0-1"
    assert one("loss", [a]).title == "Loss"


def test_losses_of_one_objective_share_an_axis_before_all_runs_have_ended(tmp_path: Path) -> None:
    """result.json has all values of the objective, config.yaml only those that were set."""
    runs = {
        name: read_run(write_run(tmp_path / name, parameters=parameters, finished=finished))
        for name, parameters, finished in (
            ("ended", {"temperature": 0.1}, True),
            ("running", {"temperature": 0.1}, False),
            ("other", {"temperature": 0.2}, False),
        )
    }
    result = tmp_path / "ended" / "result.json"
    saved = json.loads(result.read_text())
    saved["details"]["objective"]["parameters"]["in_batch"] = True
    result.write_text(json.dumps(saved))
    runs["ended"] = read_run(tmp_path / "ended")
    assert one("loss", [runs["ended"], runs["running"]]).title == "Loss"
    assert one("loss", [runs["ended"], runs["other"]]).title == "Loss, scaled to 0-1"
    images = [write_image_run(tmp_path / f"i{n}", finished=n > 0) for n in range(2)]
    assert one("loss", [read_run(folder) for folder in images]).title == "Loss"
    byol = write_image_run(tmp_path / "byol", method="byol", finished=False)
    other = one("loss", [read_run(folder) for folder in (images[0], byol)])
    assert other.title == "Loss, scaled to 0-1"


def test_ticks_of_large_numbers_differ() -> None:
    tick = StrMethodFormatter(_TICK)
    assert [tick(value) for value in (1200, 1200.5, -1201, 0.1 + 0.2, 1e-5, 2e6)] == [
        *("1,200", "1,200.5", "\N{MINUS SIGN}1,201", "0.3", "1e\N{MINUS SIGN}05", "2,000,000")
    ]


def test_more_runs_than_colours_stay_apart() -> None:
    assert len(set(styles(20))) == 20
    crowd = [record(f"run {i}", [0, 1], dev=[i, i + 1.0]) for i in range(9)]
    assert ">run 3<" in one("dev", crowd[:8]).wide
    assert ">run 3<" not in one("dev", crowd).wide


def test_names_are_neither_math_nor_markup() -> None:
    assert (
        ">label-0<" in one("dev", [record(f"label-{i}", [0, 1], dev=[i, i]) for i in (1, 0)]).wide
    )
    run = record("$x^$ <b>\N{SNOWMAN}\u4e2d and a long tail", [0, 1], dev=[1.0, 2.0])
    wide = one("dev", [run]).wide
    assert ">$x^$ &lt;b&gt;\N{SNOWMAN}\u4e2d and a l...<" in wide


def limits(shown: ReportPanel) -> tuple[float, float]:
    """The lower and the upper end of the vertical axis, by the scale."""
    scale = shown.scales[shown.key]
    _, top, _, bottom = scale.box
    offset, slope = scale.lines[0]["y"]
    return (bottom - offset) / slope, (top - offset) / slope


SHARES = ("hardest_share", "above_bound", "false_negatives", "opposite_halves")


@pytest.mark.parametrize("key", SHARES)
@pytest.mark.parametrize("values", [[0, 0], [1, 1], [0, 1], [0.2, 0.2], [0.98, 1]])
def test_the_axis_of_a_share_stays_within_0_and_1(key: str, values: list[float]) -> None:
    low, high = limits(one(key, [record("a", [0, 1], **{key: values})]))
    assert low == pytest.approx(0, abs=1e-4)
    assert values[-1] <= high + 1e-4 <= 1 + 2e-4


@pytest.mark.parametrize("key", ["dissipation", "norm", "gradient_norm", "effective_rank", "std"])
@pytest.mark.parametrize("values", [[0, 0], [0.2, 3], [7, 7]])
def test_the_axis_of_what_is_never_negative_is_not_either(key: str, values: list[float]) -> None:
    low, high = limits(one(key, [record("a", [0, 1], **{key: values})]))
    assert low >= -1e-4
    assert high > max(values)


def test_each_dev_metric_has_a_picture_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = [section for section in SECTIONS if any(q.key == "dev" for q in section.quantities)]
    monkeypatch.setattr("isotrope.reports.panels.SECTIONS", scores)
    dev = tuple(quantity for quantity in QUANTITIES if quantity.key == "dev")
    monkeypatch.setattr("isotrope.reports.pictures.QUANTITIES", dev)
    sts, mrr = "dev STS Spearman (dev.tsv)", "held-out MRR@10 of 97 queries among 1,097 texts"
    folders = [
        write_run(tmp_path / "a", dev_name=sts, dev=(80, 81), settings="dev: dev.tsv\n"),
        write_run(tmp_path / "b", dev_name=mrr, dev=(20, 30), settings="dev: auto\n"),
        write_run(tmp_path / "c", dev_name=sts, dev=(82, 83), settings="dev: dev.tsv\n"),
        write_run(tmp_path / "d", dev=(84, 85), settings="dev: dev.tsv\n", finished=False),
        write_run(tmp_path / "e", dev=()),
    ]
    runs = [read_run(folder) for folder in folders]
    first, second = (shown for shown in panels(runs) if shown.key.startswith("dev"))
    assert (first.key, first.title) == ("dev", "Dev STS Spearman (dev.tsv)")
    whole = "Held-out MRR@10 of 97 queries among\n1,097 texts"
    assert (second.key, second.title) == ("dev2", whole)
    assert [line["run"] for line in first.scales["dev"].lines] == [0, 2, 3]
    assert [line["run"] for line in second.scales["dev2-wide"].lines] == [1]
    assert (first.without, second.without) == (("e",), ())
    low, high = limits(second)
    assert 10 < low < high < 40
    assert styles(5)[1].colour in second.svg
    assert styles(5)[0].colour not in second.svg
    assert {file.name for file in write_pictures(runs, tmp_path / "p")} >= {"dev.svg", "dev2.svg"}


def dashes(shown: ReportPanel, run: int, line: str = "") -> tuple[str, ...]:
    """The dash pattern and its offset of a line."""
    found = re.search(rf'id="series-{shown.key}-{run}{line}"> <path d="[^"]*"([^>]*)', shown.svg)
    assert found
    return tuple(re.findall(r"stroke-dash(?:array|offset): ([^;\"]*)", found[1]))


def test_multiples_of_pi_keep_their_sign() -> None:
    texts = [multiple(angle * np.pi) for angle in (-1.5, -1, -0.25, 0, 0.25, 1, 2)]
    assert texts == ["-3π/2", "-π", "-π/4", "0", "π/4", "π", "2π"]


@pytest.mark.parametrize("count", [2, 3, 8])
def test_runs_of_equal_values_take_turns(count: int) -> None:
    steps = [float(step) for step in range(50)]
    values = list(np.sin(np.array(steps) / 9) / 3 + 0.5)
    equal = [record(f"r{i}", steps, above_bound=values, dissipation=values) for i in range(count)]
    other = record("other", steps, above_bound=[v / 2 for v in values])
    shown = one("above_bound", [*equal, other])
    patterns = [dashes(shown, i) for i in range(count)]
    assert len({pattern[0] for pattern in patterns}) == 1  # the same stripes,
    assert len(set(patterns)) == count  # one after the other
    on, off = map(float, patterns[0][0].split(","))
    assert off == pytest.approx((count - 1) * on, rel=1e-3)
    if count < 6:
        assert dashes(shown, count) == ()
    apart = one("above_bound", [equal[0], other])
    assert dashes(apart, 0) == dashes(apart, 1) == ()


def test_a_shorter_run_on_a_longer_one_is_seen() -> None:
    long = record("long", [0, 1, 2, 3, 4], ratio=[1, 2, 3, 4, 5])
    short = record("short", [0, 2, 4], ratio=[1, 3, 5])
    assert dashes(one("ratio", [long, short]), 0) != dashes(one("ratio", [long]), 0)
    single = one("ratio", [record(name, [3], ratio=[1]) for name in "ab"])
    markers = re.findall(r'xlink:href="#([^"]*)"[^>]*fill: (#\w+)', single.svg)
    assert len({marker for marker, colour in markers if colour != "none"}) == 2


def test_dotted_lines_of_equal_values_take_turns_too() -> None:
    runs = [record(n, [0, 1, 2], dissipation=[3, 2, 1], dead=[0, 0.5, 1]) for n in "ab"]
    shown = one("dissipation", runs)
    first, second = dashes(shown, 0, "-1"), dashes(shown, 1, "-1")
    assert first[0] == second[0] != dashes(shown, 0)[0]
    assert first[1:] != second[1:]


@pytest.mark.parametrize("count", [30, 89, 90, 1_000_000])
def test_a_running_mean_is_that_of_the_points_around(count: int) -> None:
    values = np.random.default_rng(0).normal(3.0, 1.0, count)
    if count < 1_000_000:
        values[3] = 1e18  # an exploding loss
    reach, found = max(2, count // 30), _smooth(values)
    assert len(found) == count
    for place in np.linspace(0, count - 1, 30).astype(int):
        around = values[max(0, place - reach) : place + reach + 1]
        assert found[place] == pytest.approx(around.mean(), rel=1e-10)
