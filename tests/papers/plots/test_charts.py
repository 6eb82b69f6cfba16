"""Charts of measured numbers: nothing overlaps, nothing raises, the same bytes each time."""

import io
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text

from isotrope.reports.surfaces import Picture, written
from papers.plots import charts as module
from papers.plots.charts import Chart, Series, charts
from papers.plots.framing import extent
from papers.plots.labels import apart, beside, room
from papers.plots.shapes import style_at
from papers.plots.ticks import linear_ticks, log_ticks, numbers

LINE = Series("InfoNCE", [0, 1, 2, 3], [10.0, 20.0, 25.0, 26.0], [1.0, 1.0, 2.0, 0.5])
OTHER = replace(LINE, title="Barlow Twins", y=[12.0, 15.0, 18.0, 24.0])
LONG = "a name of sixty characters, which is more than anything holds"
STS = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "average of all"]
NAN, INF = math.nan, math.inf


def keeping(monkeypatch: pytest.MonkeyPatch, write: Callable[[Figure], Picture]) -> list[Figure]:
    """The figures behind the pictures to come, which are written in this way."""
    kept: list[Figure] = []

    def keep(figure: Figure) -> Picture:
        kept.append(figure)
        return write(figure)

    monkeypatch.setattr(module, "written", keep)
    return kept


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures behind the pictures; no files, which would take most of the time."""

    def without_files(figure: Figure) -> Picture:
        figure.draw_without_rendering()
        return Picture(b"", b"")

    return keeping(monkeypatch, without_files)


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def shown(figure: Figure) -> list[Text]:
    """What can be read, in the order drawn."""
    return [
        text
        for text in figure.findobj(Text)
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip()
    ]


def outline(text: Text) -> Path:
    """The corners of a text, also if it is slanted."""
    angle = text.get_rotation()
    if angle % 90 == 0:
        corners = extent(text).padded(-1).corners()
    else:
        text.set_rotation(0)
        corners = extent(text).padded(-1).corners()
        text.set_rotation(angle)
        x, y = text.get_transform().transform(text.get_position())
        corners = mpl.transforms.Affine2D().rotate_deg_around(x, y, angle).transform(corners)
    return Path([corners[i] for i in (0, 1, 3, 2, 0)], closed=True)


def assert_apart(figure: Figure) -> None:
    """No text overlaps another or sticks out, no legend lies on a panel, and no panel on one."""
    texts = shown(figure)
    outlines = [outline(text) for text in texts]
    for i, j in itertools.combinations(range(len(texts)), 2):
        assert not outlines[i].intersects_path(outlines[j], filled=True), (texts[i], texts[j])
    for text, corners in zip(texts, outlines, strict=True):
        assert corners.get_extents().min.min() >= 0, text
        assert (corners.get_extents().max <= figure.bbox.max).all(), text
    boxes = [axes.bbox for axes in figure.axes]
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    boxes += [extent(legend).padded(-1) for legend in legends]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in shown(figure)]


def test_both_formats_are_whole_and_repeatable() -> None:
    picture = charts([Chart("one", [LINE, OTHER]), Chart("two", [LINE], kind="bars")])
    root = ElementTree.fromstring(picture.svg)
    assert root.get("viewBox")
    assert b"<text" not in picture.svg
    assert picture.png.startswith(b"\x89PNG")
    assert picture == charts([Chart("one", [LINE, OTHER]), Chart("two", [LINE], kind="bars")])
    other = replace(LINE, y=[10.0, 20.0, 25.0, 27.0])
    assert picture.svg != charts([Chart("one", [other, OTHER])]).svg
    assert mpl.image.imread(io.BytesIO(picture.png))[0, 0, 3] == 0, "transparent"


SCORES = [
    Series(name, STS, [50.0 + i + j for j in range(8)], [2.0] * 8) for i, name in enumerate("abc")
]
POINTS = [
    Series(f"objective {i}", [0.2 + 0.01 * (i % 3)], [-2.0 - 0.02 * i], [0.01], colour=[float(i)])
    for i in range(12)
]
CLOUD = Series("cloud", list(range(90)), [math.sin(i) for i in range(90)], colour=[NAN, *range(89)])
GALLERY = {
    "lines": [Chart(t, [LINE, OTHER], "step", "accuracy", marks={"raw": 12.0, "paper": 12.2})
              for t in "abc"],
    "own legends": [Chart("a", [LINE, replace(OTHER, title=LONG)]), Chart("b", [OTHER])],
    "bars": [Chart("STS", SCORES, "", "Spearman", kind="bars", marks={"paper": 76.25})] * 2,
    "long bars": [Chart("b", [replace(one, x=[f"{i} {LONG}" for i in range(8)]) for one in SCORES],
                        LONG, LONG, kind="bars")],
    "many bars": [Chart("b", [Series("a", list(map(str, range(2000, 2040))), [1.0] * 40)])],
    "points": [Chart("p", POINTS, "alignment", "uniformity", kind="points", colour="STS-B")] * 2,
    "one place": [Chart("p", [replace(p, x=[1], y=[1.0]) for p in POINTS], kind="points")],
    "too many points": [Chart("p", [replace(POINTS[0], title=f"p{i}") for i in range(30)],
                              kind="points", marks={"m": 0.0})],
    "cloud": [Chart("p", [CLOUD, POINTS[0]], kind="points", colour=LONG, marks={LONG: 0.0})],
    "log": [Chart("l", [Series("a", [16, 64, 256, 1024, 4096, 16384], [1e-6, 1, 2, 3, 1e5, 1e9])],
                  "rows", "MiB", log_x=True, log_y=True, marks={"limit": 10.0})] * 3,
    "empty": [Chart("a", [LINE], "x"), Chart(LONG * 3, [], LONG * 3, LONG * 3)],
    "marks": [Chart("m", [LINE], marks={f"mark {i}": 20.0 for i in range(9)} | {LONG: 20.1})],
}  # fmt: skip


@pytest.mark.parametrize("name", GALLERY)
def test_nothing_overlaps(name: str, drawn: list[Figure]) -> None:
    charts(GALLERY[name])
    assert_apart(drawn[0])


def test_overlap_is_seen(drawn: list[Figure]) -> None:
    charts(GALLERY["bars"])
    names = [label for label in drawn[0].axes[0].get_xticklabels() if label.get_text()]
    assert 0 < names[0].get_rotation() < 90
    names[1].set_fontsize(30)
    with pytest.raises(AssertionError, match="STS13"):
        assert_apart(drawn[0])


def test_one_legend_for_all_or_one_each(drawn: list[Figure]) -> None:
    charts([Chart("a", [LINE, OTHER]), Chart("b", [OTHER]), Chart("c", [])])
    charts([Chart("a", [LINE]), Chart("b", [OTHER])])
    charts([Chart("a", []), Chart("b", [replace(LINE, title=" ")])])
    shared, own, none = drawn
    assert words(shared).count("InfoNCE") == words(shared).count("Barlow Twins") == 1
    assert len(shared.legends) == 1
    assert own.legends == []
    assert [axes.get_legend().get_texts()[0].get_text() for axes in own.axes] == [
        "InfoNCE",
        "Barlow Twins",
    ]
    assert words(none).count("not run") == 1
    assert not none.legends


def test_what_was_not_run_is_in_no_legend(drawn: list[Figure]) -> None:
    nothing = replace(OTHER, y=[None] * 4)
    charts([Chart("a", [LINE, nothing]), Chart("b", [LINE, OTHER])])
    charts([Chart("a", [LINE, nothing])])
    assert "Barlow Twins" in words(drawn[0])
    assert "Barlow Twins" not in words(drawn[1])


def test_a_title_looks_the_same_in_all_panels(drawn: list[Figure]) -> None:
    third = replace(LINE, title="third")
    charts([Chart("a", [LINE, OTHER]), Chart("b", [OTHER, third])])
    (first, second), (again, other) = (axes.lines[::2] for axes in drawn[0].axes)
    assert second.get_color() == again.get_color() != other.get_color() == first.get_color()
    assert second._dash_pattern == again._dash_pattern != first._dash_pattern


def test_looks_differ_in_more_than_colour() -> None:
    assert len({style_at(i) for i in range(36)}) == 36
    for what in ("colour", "marker", "dash", "hatch"):
        assert len({getattr(style_at(i), what) for i in range(6)}) == 6


def test_a_line_breaks_where_nothing_was_measured(drawn: list[Figure]) -> None:
    gaps = Series("a", [0, 1, 2, 3, 4, 5], [1.0, 2.0, None, INF, 3.0, NAN], [0.1] * 6)
    charts([Chart("a", [gaps])])
    line, dots = drawn[0].axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), [1, 2, NAN, NAN, 3, NAN])
    np.testing.assert_array_equal(dots.get_xdata(), [0, 1, 4])
    band, whisker = drawn[0].axes[0].collections
    assert [path.get_extents().intervalx.tolist() for path in band.get_paths()] == [[0, 1]]
    np.testing.assert_allclose(whisker.get_segments(), [[[4, 2.9], [4, 3.1]]])


def test_bars_stand_on_zero_side_by_side(drawn: list[Figure]) -> None:
    one = Series("a", ["x", "y"], [3.0, 5.0], [0.5, None])
    two = Series("b", ["y", "z"], [None, -1.0])
    charts([Chart("a", [one, two], kind="bars"), Chart("b", [one], kind="bars")])
    axes, alone = drawn[0].axes
    found = [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in axes.patches]
    np.testing.assert_allclose(found, [(-0.2, 3), (0.8, 5), (2.2, -1)])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "y", "z"]
    assert axes.get_ylim()[0] < -1
    assert alone.get_ylim()[0] == 0
    np.testing.assert_allclose(alone.collections[0].get_segments(), [[[0, 2.5], [0, 3.5]]])


def test_numbers_below_bars_are_names(drawn: list[Figure]) -> None:
    charts(
        [Chart("a", [Series("a", [1024, 32, NAN], [1.0, 1000.0, 1.0])], kind="bars", log_y=True)]
    )
    (axes,) = drawn[0].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["32", "1,024"]
    low = axes.get_ylim()[0]
    assert 0 < low < 0.5
    assert {bar.get_y() for bar in axes.patches} == {low}


def test_single_points_have_their_titles_beside_them(drawn: list[Figure]) -> None:
    charts([Chart("p", POINTS, kind="points", colour="STS-B"), Chart("q", [CLOUD], kind="points")])
    figure = drawn[0]
    assert [words(figure).count(point.title) for point in POINTS] == [1] * 12
    assert words(figure).count("STS-B") == 1
    axes = panels(figure)[0]
    near = {text.get_text(): extent(text).padded(15) for text in axes.texts}
    for point in POINTS[:2]:
        assert near[point.title].contains(*axes.transData.transform((point.x[0], point.y[0])))


def test_points_of_one_meaning_share_their_colours(drawn: list[Figure]) -> None:
    few = [replace(CLOUD, colour=[float(k)] * 90) for k in (2, 5)]
    charts([Chart("p", [one], kind="points", colour="score") for one in few])
    charts([Chart("p", [few[0]], kind="points", colour=word) for word in ("score", "other")])
    together, alone = ([axes.collections[0].norm for axes in panels(f)] for f in drawn)
    assert [(norm.vmin, norm.vmax) for norm in together] == [(2, 5)] * 2
    assert alone[0].vmin < 2 < alone[0].vmax


def test_marks_have_their_labels_outside(drawn: list[Figure]) -> None:
    marks = {"raw pixels": 33.0, "paper": 36.2, "none": NAN}
    charts([Chart("a", [LINE], marks=marks), Chart("b", [LINE], marks={"low": 0.0}, log_y=True)])
    axes, logarithmic = drawn[0].axes
    assert axes.get_ylim()[1] > 36.2
    assert [text.get_text() for text in axes.texts] == ["raw pixels", "paper"]
    assert all(extent(text).x0 > axes.bbox.x1 for text in axes.texts)
    assert not logarithmic.texts


def test_few_columns_and_many(drawn: list[Figure]) -> None:
    for columns in (1, 2, 9):
        charts([Chart(str(i), [LINE]) for i in range(3)], columns=columns)
    wide = [Chart(str(i), [replace(s, x=STS) for s in SCORES * 2], kind="bars") for i in range(3)]
    charts(wide)
    found = [len({round(axes.get_position().x0, 4) for axes in figure.axes}) for figure in drawn]
    assert found == [1, 2, 3, 2]


ODD: dict[str, Series] = {
    "empty": Series("a", [], [], [], []),
    "one": Series("a", [1], [2.0], [0.5]),
    "None": Series("a", [1, 2], [None, None], [None, None]),
    "None in x": Series("a", [None, 2.0, INF], [1.0, 2.0, 3.0]),  # type: ignore[list-item]
    "infinite": Series("a", [1, 2, 3], [INF, -INF, 1.0], [NAN, 1.0, INF], [NAN, INF, 1.0]),
    "equal": Series("a", [5, 5, 5], [7.0, 7.0, 7.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),
    "zero": Series("a", [0, 0], [0.0, 0.0]),
    "negative": Series("a", [-1, -2], [-3.0, -4.0], [-1.0, 9.0]),
    "huge": Series("a", [-1e250, 1e250, 1e308], [1e-250, 1e250, -1e308], [1e250, 1e200, 1e308]),
    "tiny": Series("a", [5e-324, 1e-300, 1e-250], [5e-324, 1e-300, 1e-250]),
    "close": Series("a", [1e15, 1e15 + 1, 1e15 + 2], [1.0, 1.0 + 1e-12, 1.0 + 1e-15]),
    "names": Series("a", [LONG, LONG + "!", ""], [1.0, None, 2.0], [0.1, 0.1, None]),
    "arrays": Series("a", np.arange(3), np.array([1.0, NAN, 2.0]), np.ones(3)),  # type: ignore[arg-type]
    "spread": Series("a", [1, 2], [1.0, 2.0], [1 - 1e-16, 5.0]),
    "title": Series("_$x^$ <b>-->\x07\ud800\u4e2d\n" + LONG, [1, 2], [1.0, 2.0]),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.slow
def test_odd_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = keeping(monkeypatch, written)
    every = [
        Chart(name, [ODD[name]], kind=kind, log_x=log, log_y=log, marks={"": 1.0, "far": NAN})
        for kind in ("lines", "points", "bars")
        for log in (False, True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = charts(every)
    ElementTree.fromstring(picture.svg)
    assert b"nan" not in picture.svg
    assert_apart(drawn[0])


def test_names_are_neither_math_nor_markup(drawn: list[Figure]) -> None:
    charts([Chart("$x^$ \x07", [replace(LINE, title="_\ud800$")], "$x$")])
    assert {"$x^$ \N{REPLACEMENT CHARACTER}", "_\N{REPLACEMENT CHARACTER}$", "$x$"} < set(
        words(drawn[0])
    )


def test_no_panels() -> None:
    assert charts([]) == charts([Chart("", [])])


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: Series("a", [1, 2], [1.0]), "'a' has 2 x and 1 y; give one y for each x"),
        (lambda: Series("a", [1], [1.0], [1.0, 2.0]), "'a' has 1 x and 2 spread"),
        (lambda: Series("a", [1], [1.0], colour=[]), "'a' has 1 x and 0 colour"),
        (lambda: Series("a", ["b", 2], [1.0, 1.0]), r"both names \('b'\) and numbers \(2\) as x"),
        (lambda: Series("a", ["b", "b"], [1.0, 1.0]), "'a' has the name 'b' twice"),
        (
            lambda: Chart("c", [LINE, Series("a", ["b"], [1.0])]),
            r"chart 'c' has both names \('b'\) and numbers \(0\) as x; give one or the other",
        ),
        (lambda: Chart("c", [], kind="pie"), "kind 'pie'; choose lines, points, bars"),
        (lambda: charts([], columns=0), "columns is 0; give at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn(build: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build()


@pytest.mark.parametrize(
    ("ticks", "texts"),
    [
        ([0, 0.5, 1], ["0", "0.5", "1"]),
        ([0.1 + 0.2, -0.3], ["0.3", "−0.3"]),
        ([0, 500_000, 1_000_000], ["0", "5×10⁵", "10⁶"]),
        ([16, 1024, 16384], ["16", "1,024", "16,384"]),
        ([1e-7, 1e-3, 10], ["10⁻⁷", "10⁻³", "10¹"]),
        ([-1e9, 2.5e9], ["−10⁹", "2.5×10⁹"]),
        ([1 + 1e-10, 1 + 2e-10], ["1.0000000001", "1.0000000002"]),
        ([], []),
    ],
)
def test_numbers_of_ticks(ticks: Sequence[float], texts: Sequence[str]) -> None:
    assert numbers(ticks) == texts


def test_ticks_are_round() -> None:
    assert linear_ticks(-0.1, 3.2, 5, integers=True) == [0, 1, 2, 3]
    assert linear_ticks(4.75, 5.25, 5, integers=True) == [5]
    assert linear_ticks(0.0, 1.0, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert log_ticks(0.5, 2e9, 6) == [1, 100, 10_000, 1e6, 1e8]
    assert log_ticks(0.9, 12, 6) == [1, 3, 10]
    assert log_ticks(2.1, 2.3, 3) == pytest.approx([2.1, 2.2, 2.3])


def test_labels_are_pushed_no_further_than_they_must() -> None:
    assert apart([0.5, 0.5], [0.2, 0.2], 0, 1) == pytest.approx([0.4, 0.6])
    assert apart([0.9, 0.1, 0.2], [0.1, 0.1, 0.1], 0, 1) == pytest.approx([0.9, 0.1, 0.2])
    assert apart([1.0, 1.0], [0.2, 0.4], 0, 1) == pytest.approx([0.5, 0.8])
    assert apart([0.1, 0.0, 0.4], [0.2, 0.2, 0.2], 0, 1) == pytest.approx([0.3, 0.1, 0.5])
    assert apart([0.0] * 3, [0.5] * 3, 0, 1) == pytest.approx([-0.25, 0.25, 0.75])
    assert apart([], [], 0, 1) == []


def test_labels_find_places_as_long_as_there_is_room() -> None:
    """As wide as the frame: none but one in each row."""
    frame = (0.0, 0.0, 100.0, 100.0)
    sizes = [(100.0, 10.0)] * 10
    assert room(sizes, frame)
    assert not room(sizes * 2, frame)
    boxes = beside([(50.0, 45.0)] * 10, sizes, frame, [])
    assert sorted(box[1] for box in boxes) == list(range(0, 100, 10))
