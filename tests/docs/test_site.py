"""The site: it builds strictly, its links lead somewhere, and nothing is fetched from elsewhere."""

import fcntl
import inspect
import itertools
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("zensical", reason="of the extra docs: make test-docs")

import isotrope
from tests.patience import MINUTES
from tests.reports.chromium import NAMES, Tab, chromium, installed

pytestmark = pytest.mark.slow  # zensical builds for seconds

ROOT = Path(__file__).resolve().parents[2]
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Links(HTMLParser):
    """What a page fetches, what it links to, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.linked: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        if tag in FETCHED and FETCHED[tag] in given:
            self.fetched.append(given[FETCHED[tag]])
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(given["href"])
        if tag == "a" and "href" in given:
            self.linked.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from this checkout."""
    return build(ROOT, tmp_path_factory.mktemp("site"))


def build(root: Path, folder: Path) -> Path:
    command = [sys.executable, "docs/site.py", str(folder)]
    (root / "build").mkdir(exist_ok=True)
    with (root / "build" / "lock").open("w") as lock:  # processes of pytest lay out one folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {str(page.relative_to(site).with_suffix("")) for page in site.rglob("*.html")}
    guide = {f"guide/{page.stem}" for page in (ROOT / "docs" / "guide").glob("*.md")}
    assert len(guide) >= 13
    assert guide | {"notebooks/adapt", "commands/train", "objectives/met"} <= pages
    assert {"index", "install", "faq", "api", "diagnosis", "repository/CONTRIBUTING"} <= pages
    assert not list(site.rglob("*.py.html"))
    assert not {"build", "generate"} & {path.name for path in site.iterdir()}
    notebook = (site / "notebooks" / "components.html").read_text(encoding="utf-8")
    assert "The three components of an objective, edited" in notebook


def test_a_page_reads_as_on_github(site: Path) -> None:
    train = (site / "commands" / "train.html").read_text(encoding="utf-8")
    assert '<code><span class="whole">--device</span> auto|cpu|cuda|mps</code>' in train
    notation = (site / "notation.html").read_text(encoding="utf-8")
    assert "|W_ik| / Σ_j |W_ij|" in notation
    assert "<strong>weight</strong> (W_ij), <strong>pull</strong> (Σ_j W_ij R_ij)" in notation
    assert "(Σ_j W_ij R_ij) h'_i  +  extra_i )" in notation, "an indented block is as it is"
    assert "theta' &lt;- m theta'" in (site / "methods" / "byol.html").read_text(encoding="utf-8")


def test_the_api_has_every_name_with_its_docstring(site: Path) -> None:
    page = (site / "api.html").read_text(encoding="utf-8")
    for name in isotrope.__all__:
        thing = getattr(isotrope, name)
        if inspect.ismodule(thing) or isinstance(thing, str):
            continue
        assert f"::: isotrope.{name}\n" in (ROOT / "docs" / "api.md").read_text("utf-8")
        assert f'id="isotrope.{name}"' in page


def test_links_lead_to_files_and_anchors_of_the_site(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html")}
    wrong = []
    for page, links in pages.items():
        if page.name == "404.html":
            continue  # its links are from the root of a server
        for link in (*links.linked, *links.fetched):
            if re.match(r"https?:|mailto:|data:", link) or link in ("", "."):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].anchors if target in pages else {""}
            if not target.is_file() or anchor not in known | {"", "__search", "__toc"}:
                wrong.append(f"{page.relative_to(site)}: {link}")
    assert not wrong


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages, sheets = list(site.rglob("*.html")), list(site.rglob("*.css"))
    assert pages
    assert sheets
    for page in pages:
        away = [link for link in Links(page).fetched if re.match(r"(https?:)?//", link)]
        assert not away, f"{page.relative_to(site)} fetches {away}"
    for sheet in sheets:
        assert not re.search(r"(url\(|@import )[\"']?(https?:)?//", sheet.read_text("utf-8"))


def test_a_dead_link_stops_it(tmp_path: Path) -> None:
    for name in ("docs", "benchmarks", "papers", "src", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.suffix in (".md", ".yml", ".cff") or file.name in ("LICENSE", "Makefile"):
            shutil.copy(file, tmp_path)
    page = tmp_path / "docs" / "guide" / "start.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[gone](../../benchmarks/gone.csv)\n")
    with pytest.raises(AssertionError, match=r"benchmarks/gone\.csv"):
        build(tmp_path, tmp_path / "site")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    path = installed()
    if path is None:
        pytest.skip(f"no browser on this machine (looked for {', '.join(NAMES)})")
    with chromium(path, tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", ["index", "guide/start", "guide/compare", "commands/train"])
def test_a_browser_shows_it_and_asks_nobody(site: Path, tab: Tab, page: str, width: int) -> None:
    tab.asked.clear()
    tab.open(site / f"{page}.html", width=width)
    assert tab.run("document.querySelector('article h1').innerText.length") > 2
    # a wide table scrolls by itself
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run("[...document.images].every((i) => i.complete && i.naturalWidth)")
    assert {url.split(":")[0] for url in tab.asked} <= {"file", "data"}, tab.asked


# the tables that scroll sideways, once the theme's script has given each its own box
SCROLLING = """((boxes) => boxes.length < document.querySelectorAll("article table").length ? null
  : boxes.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.innerText))(
  [...document.querySelectorAll(".md-typeset__scrollwrap")])"""


@pytest.mark.nightly
def test_every_page_fits_a_phone_and_every_table_a_screen(site: Path, tab: Tab) -> None:
    wrong = []
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    for page, width in itertools.product(pages, (400, 1280)):
        tab.open(page, width=width)
        if tab.run("document.documentElement.scrollWidth") > width:
            wrong.append(f"{page.relative_to(site)} scrolls sideways at {width}")
        end = time.monotonic() + MINUTES
        while (tables := tab.run(SCROLLING)) is None:
            assert time.monotonic() < end, page
            time.sleep(0.02)
        if width == 1280:
            wrong += [f"{page.relative_to(site)}: {table[:60]}" for table in tables]
    assert not wrong


def test_a_phone_shows_rows_of_text_below_each_other(site: Path, tab: Tab) -> None:
    tab.open(site / "commands" / "train.html", width=400)
    lefts = "[...document.querySelectorAll('[data-rows] td')].map((c) => c.offsetLeft)"
    assert len(set(tab.run(lefts))) == 1
    tab.open(site / "replication.html", width=400)
    names = "getComputedStyle(document.querySelector('[data-rows] td:nth-child(3)'), '::before')"
    assert tab.run(f"{names}.content") == '"ours (interval): "'
