"""A real browser shows the report: all is drawn, nothing overlaps, nothing foreign runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isotrope.reports.html import write_report
from tests.reports.chromium import NAMES, Tab, chromium, installed
from tests.reports.folders import (
    FAULTY,
    OLD,
    PLOTTED,
    write_diagnosis,
    write_image_run,
    write_run,
)
from tests.reports.test_html import NASTY

# the pictures that are shown: key, size, and of each line its size
PLOTS = """[...document.querySelectorAll(".plot")].filter((p) => p.offsetWidth).map((plot) => {
  const box = plot.querySelector("svg").getBoundingClientRect();
  const lines = [...plot.querySelectorAll("[id^=series-]")].map((line) => {
    const inner = line.getBoundingClientRect();
    return [inner.width, inner.height, inner.left >= box.left && inner.right <= box.right + 1];
  });
  return { key: plot.dataset.picture, width: box.width, height: box.height, lines };
})"""
# pairs of words of one picture that lie over each other
OVERLAPS = """[...document.querySelectorAll(".plot svg")].flatMap((svg) => {
  const words = [...svg.querySelectorAll("text")]
    .map((text) => ({ text: text.textContent, box: text.getBoundingClientRect() }))
    .filter(({ box }) => box.width);
  return words.flatMap((a, i) => words.slice(i + 1).filter((b) =>
    a.box.left < b.box.right - 1 && b.box.left < a.box.right - 1
    && a.box.top < b.box.bottom - 1 && b.box.top < a.box.bottom - 1
  ).map((b) => `${a.text} / ${b.text}`));
})"""
STICKING_OUT = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# brightness of a colour, 0 to 1, after the browser's own resolution
BRIGHTNESS = """((selector, property) => {
  const colour = getComputedStyle(document.querySelector(selector))[property];
  const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
})"""
TIP = """[...document.querySelectorAll(".tip.on")].map((tip) => tip.innerText).join()"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    path = installed()
    if path is None:
        pytest.skip(f"no browser on this machine (looked for {', '.join(NAMES)})")
    with chromium(path, tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with everything in it: two runs of one nasty name, an old one, one of images."""
    folder = tmp_path_factory.mktemp("page")
    runs = [
        write_diagnosis(
            write_run(folder / side / "<script>alert(1)<" / "script>", verdict=NASTY), FAULTY
        )
        for side in "ab"
    ]
    runs += [
        write_run(folder / "a run with quite a long name of many words", columns=OLD),
        write_run(folder / ("long" * 20), dev=(80.0,), finished=False),
        write_image_run(folder / "pixels", method="byol"),
    ]
    return write_report(runs, folder / "report.html")


def place(tab: Tab, key: str, across: float, down: float) -> tuple[float, float]:
    """Scroll to a picture; return where a point of it is, by its share of width and height."""
    box: dict[str, Any] = tab.run(
        f"""(() => {{ const plot = document.querySelector("[data-picture={key}]");
        plot.scrollIntoView({{ block: "center" }});
        const {{ left, top, width, height }} = plot.getBoundingClientRect();
        return {{ left, top, width, height }}; }})()"""
    )
    return box["left"] + across * box["width"], box["top"] + down * box["height"]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (375, False)])
def test_all_is_drawn_and_nothing_overlaps(tab: Tab, page: Path, width: int, dark: bool) -> None:
    tab.console.clear()
    tab.asked.clear()
    tab.open(page, width=width, dark=dark)
    assert tab.run("document.title") == "Training report"
    assert tab.console == []
    assert {url for url in tab.asked if not url.startswith("data:")} == {page.as_uri()}
    assert tab.run("document.querySelector('h4').innerText")

    hero = "-wide" if width > 640 else ""
    # what the unfinished run's dev score measures is not known: it shares no axis with the others
    scores = [f"dev{hero}", f"dev2{hero}", f"knn{hero}"]
    keys = [*scores, *PLOTTED[1:]]
    plots = tab.run(PLOTS)
    assert [plot["key"] for plot in plots] == keys
    for plot in plots:
        assert plot["width"] > 250
        assert plot["height"] > 120
        assert plot["lines"]
        for across, down, inside in plot["lines"]:
            assert across + down > 0, plot["key"]
            assert inside, plot["key"]
    assert tab.run(OVERLAPS) == []
    assert tab.run(STICKING_OUT) == 0

    for selector in ("body", ".plot svg text", ".note", "h4"):
        shade = tab.run(f"{BRIGHTNESS}('{selector}', 'color')")
        assert shade > 0.5 if dark else shade < 0.5, selector
    paper = tab.run(f"{BRIGHTNESS}('body', 'backgroundColor')")
    assert paper < 0.1 if dark else paper > 0.9


def test_the_comparison_fits_the_page(tab: Tab, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name) for name in ("first", "second")]
    tab.open(write_report(runs, tmp_path / "report.html"), width=1200)
    note = "const note = document.querySelector('td.number small')"
    words = "dev data 1; 95% interval +2.25 to +10.95: improved"
    tab.run(f"{{ {note}; note.innerText = '{words}' }}")
    assert (
        tab.run(
            "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)"
            "(document.querySelector('.scroll'))"
        )
        == 0
    )
    assert tab.run(f"(() => {{ {note}; return note.offsetHeight }})()") > 30


def test_the_pointer_reads_numbers(tab: Tab, page: Path) -> None:
    tab.console.clear()
    tab.open(page)
    assert tab.run(TIP) == ""
    tab.point(*place(tab, "dissipation", 0.98, 0.5))  # the end of the run: step 40
    told = tab.run(TIP)
    assert told.startswith("step 40")
    assert "a/<script>alert(1)</script>" in told
    assert told.count("0.2406") == 4  # GD = 0.2 + 0.3 exp(-2), of four runs
    assert told.count("dead anchors") == 5
    assert tab.run("document.querySelectorAll('.cursor circle').length") == 10
    tab.point(*place(tab, "angles", 0.98, 0.5))
    assert "0.5353 \N{PLUS-MINUS SIGN} 0.2" in tab.run(TIP)
    tab.point(*place(tab, "trajectory", 0.14, 0.8))  # left: alignment at its lowest
    assert "0.1865, \N{MINUS SIGN}2.865" in tab.run(TIP)
    tab.point(2, 2)
    assert tab.run(TIP) == ""
    assert tab.console == []
    assert tab.run(STICKING_OUT) == 0


def test_the_keys_read_numbers(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.run("document.querySelector('.scroll').focus()")
    for _ in range(20):
        tab.press("Tab")
        if tab.run("document.activeElement.dataset.picture || ''") == "loss":
            break
    assert tab.run(TIP).startswith("step 40")
    assert tab.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.press("ArrowLeft")
    assert tab.run(TIP).startswith("step 38")
    tab.press("Escape")
    assert tab.run(TIP) == ""


def tap(tab: Tab, x: float, y: float) -> None:
    for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        tab.send("Input.dispatchTouchEvent", type=kind, touchPoints=points)


def test_a_finger_on_a_phone(tab: Tab, page: Path) -> None:
    tab.open(page, width=375)
    tap(tab, *place(tab, "loss", 0.97, 0.5))
    assert tab.run(TIP).startswith("step 40")  # it stays when the finger has gone
    inside = tab.run(
        "(() => { const b = document.querySelector('.tip.on').getBoundingClientRect(); "
        "return b.width > 100 && b.left >= 0 && b.right <= innerWidth })()"
    )
    assert inside
    assert tab.run(STICKING_OUT) == 0
    tap(tab, *place(tab, "ratio", 0.97, 0.5))
    assert tab.run("document.querySelectorAll('.tip.on').length") == 1


def test_a_foreign_script_does_not_run(tab: Tab, page: Path, tmp_path: Path) -> None:
    """Even if a word got into the page unescaped, the policy keeps it from running."""
    broken = tmp_path / "broken.html"
    injected = "<script>document.title = 'hacked'</script></body>"
    broken.write_text(page.read_text(encoding="utf-8").replace("</body>", injected))
    tab.console.clear()
    tab.open(broken)
    assert tab.run("document.title") == "Training report"
    assert "Content Security Policy" in "".join(tab.console)
