"""A real browser shows the report: nothing runs, nothing complains, nothing sticks out."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from isotrope.report.html import Example, Table, write_report
from tests.report.folders import write_run
from tests.report.test_html import NASTY

# measures a page from outside, in a frame as narrow as a phone; the page itself can run no script
PROBE = """<!doctype html><title>waiting</title>
<iframe src="report.html" style="width:390px;height:3000px;border:0"></iframe>
<script>
addEventListener("load", () => {
  const page = document.querySelector("iframe").contentDocument;
  const root = page.documentElement;
  console.log("the console is heard");
  document.body.append(`sticks out ${root.scrollWidth - root.clientWidth}, `
    + `narrow ${root.clientWidth < 400}, title ${page.title}`);
});
</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser on this machine (looked for {', '.join(names)})")
    return found


def browse(browser: str, folder: Path, page: Path, *flags: str) -> tuple[str, str]:
    """Return standard output and the console messages of one visit."""
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr",
            "--allow-file-access-from-files", f"--user-data-dir={folder / 'profile'}", *flags,
            page.as_uri(),
        ],
        capture_output=True, text=True, timeout=90, check=True, cwd=folder,
        env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, "\n".join(console)


def test_browser_shows_the_report(browser: str, tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "one", verdict=NASTY),
        write_run(tmp_path / "a run with quite a long name of many words", parameters={"x": NASTY}),
        write_run(tmp_path / ("long" * 20), dev=(1.0,), finished=False),
    ]
    page = write_report(
        runs,
        tmp_path / "report.html",
        tables=[Table("Extra", [f"column {i}" for i in range(12)], [[NASTY] + [0.5] * 11])],
        examples=[Example(NASTY, ["x" * 200], ["y"])],
    )
    dom, console = browse(browser, tmp_path, page, "--dump-dom")
    assert console == ""
    assert "<title>Training report</title>" in dom
    assert dom.count("<figure") == 8

    probe = tmp_path / "probe.html"
    probe.write_text(PROBE, encoding="utf-8")
    dom, console = browse(browser, tmp_path, probe, "--dump-dom")
    assert "the console is heard" in console
    assert "sticks out 0, narrow true, title Training report" in dom

    picture = tmp_path / "page.png"
    browse(browser, tmp_path, page, "--window-size=1280,900", f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
