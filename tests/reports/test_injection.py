"""What users and their data say never runs in a report, in a real browser without its policy."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isotrope.reports.html import write_report
from tests.reports.chromium import NAMES, Tab, chromium, installed
from tests.reports.folders import (
    FAULTY,
    write_diagnosis,
    write_image_run,
    write_run,
)

pytestmark = pytest.mark.slow

RUN = "window.hacked = 1"
PAYLOADS = (
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</title></style></textarea><script>{RUN}</script>",
    f'"><img src=x onerror="{RUN}">',
    f"'><svg onload='{RUN}'>",
    f'" onmouseover="{RUN}" onfocus="{RUN}" autofocus="',
    f"' onmouseover='{RUN}' onclick='{RUN}",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'>",
    f"<a href='javascript:{RUN}'>click</a>",
    f"--><script>{RUN}</script><!--",
    f"]]><script>{RUN}</script>",
    f"<math><mtext></p><style><img src=x onerror='{RUN}'>",
    f"\\u003cscript>{RUN}\\u003c/script>",
    f"${{{RUN}}} {{{{ 7 * 7 }}}} {{% raw %}} `{RUN}`",
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"\u2028{RUN}\u2029",
    "a $x_{$ b \\frac{ ^^ \\",
)
ALL = " ".join(PAYLOADS)
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
# everything that a visitor can do to what stands there
TOUCH = """(() => {
  for (const element of document.querySelectorAll("*")) {
    for (const kind of ["mouseover", "mouseenter", "mousemove", "focus", "click"]) {
      if (element.tagName === "A" && kind === "click") continue;
      element.dispatchEvent(new MouseEvent(kind, { bubbles: true, clientX: 300, clientY: 300 }));
    }
  }
  return document.querySelectorAll("*").length;
})()"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    path = installed()
    if path is None:
        pytest.skip(f"no browser on this machine (looked for {', '.join(NAMES)})")
    with chromium(path, tmp_path_factory.mktemp("home")) as found:
        yield found


def named(payload: str) -> str:
    """Return a payload as the name of a folder can hold it."""
    return payload.replace("/", "\N{DIVISION SLASH}")[:80]


def poisoned(value: Any) -> Any:
    """Return a record with all its texts replaced, and a few more keys."""
    if isinstance(value, dict):
        return {k: poisoned(v) for k, v in value.items()} | {ALL: ALL}
    if isinstance(value, list):
        return [*map(poisoned, value), ALL]
    return ALL if isinstance(value, str) else value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of runs in which every text is an attack, and its pictures."""
    folder = tmp_path_factory.mktemp("page")
    runs = []
    for number, payload in enumerate([*PAYLOADS[:5], *PAYLOADS[5::4]]):
        run = write_run(
            folder / f"{number} {named(payload)}",
            objective=payload, parameters={payload: payload, "x": ALL}, verdict=ALL,
            dev_name=payload, finished=number % 5 != 4,
        )  # fmt: skip
        settings = {
            "files": [payload],
            "objective": payload,
            f"objective.{payload}": payload,
        }
        (run / "config.yaml").write_text(json.dumps({**settings, payload: payload, "dev": ALL}))
        if (run / "result.json").exists():
            told = json.loads((run / "result.json").read_text())
            told["details"] |= {
                "data": {"records": 3, "files": [payload, ALL]},
                payload: [payload],
            }
            told["provenance"] = poisoned(told["provenance"])
            told["name"] = payload
            (run / "result.json").write_text(json.dumps(told))
        runs.append(run)
    words = dict.fromkeys(("verdict", "source", "change", "detail"), ALL)
    evidence = {"name": ALL, "number": 1.0, "threshold": 2, "unit": ALL, "side": ALL}
    write_diagnosis(runs[0], {"verdict": [ALL], "findings": [words | {"evidence": [evidence]}]})
    write_diagnosis(runs[1], FAULTY)
    images = write_image_run(folder / named(PAYLOADS[3]), method=PAYLOADS[0])
    write_report(
        [*runs, images],
        folder / "report.html",
        title=ALL,
        pictures=folder / "pictures",
    )
    return folder


def test_nothing_runs_even_without_the_policy(tab: Tab, folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    bare = POLICY.sub("", page)
    assert bare != page
    (folder / "bare.html").write_text(bare, encoding="utf-8")
    tab.console.clear()
    tab.asked.clear()
    tab.open(folder / "bare.html")
    assert tab.run(TOUCH) > 500
    for x in range(100, 1200, 150):
        tab.point(x, 450)
    assert tab.run("typeof window.hacked") == "undefined"
    assert tab.run("document.title").startswith("<script>")
    assert tab.run("document.scripts.length") == 2
    assert tab.run("document.images.length") == 0
    assert tab.run("document.querySelectorAll('iframe, object, embed, math, [onload]').length") == 0
    handlers = "[...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames())"
    assert tab.run(f"{handlers}.filter((name) => name.startsWith('on')).length") == 0
    assert tab.run("[...document.links].filter((a) => /^\\s*javascript/i.test(a.href)).length") == 0
    assert tab.run(f"document.body.innerText.includes({json.dumps(PAYLOADS[0])})")
    assert {url for url in tab.asked if not url.startswith("data:")} == {
        (folder / "bare.html").as_uri()
    }
    assert tab.console == []


def test_nothing_runs_in_its_pictures(tab: Tab, folder: Path) -> None:
    pictures = sorted((folder / "pictures").glob("*.svg"))
    assert len(pictures) > 5
    for picture in pictures:
        text = re.sub(r"<!--.*?-->", "", picture.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "<script" not in text
        assert not re.search(r"<[^>]*\son\w+=", text)
        tab.open(picture)
        assert tab.run("typeof window.hacked") == "undefined"


def test_the_test_would_see_it(tab: Tab, folder: Path) -> None:
    for number, payload in enumerate(PAYLOADS[:2]):
        page = folder / f"hole-{number}.html"
        page.write_text(f"<!doctype html><title>x</title><body>{payload}</body>")
        tab.open(page)
        assert tab.run("window.hacked") == 1
