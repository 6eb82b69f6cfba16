"""Every table and figure there is: listed, resolved at all scales, and run to its end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from papers.machinery.artifact import SCALES
from papers.machinery.catalogue import artifacts
from papers.machinery.data_registry import DataRegistry
from papers.machinery.runner import missing_data


def test_each_is_a_line_that_says_what_it_is() -> None:
    every = artifacts()
    papers = ["unified-gradient", "align-uniform", "cosine-pitfalls", "mio"]
    assert list(dict.fromkeys(one.paper for one in every)) == papers
    for one in every:
        assert re.search("table|figure", one.title), one
        assert "\n" not in one.title
    names = [(one.paper, one.name) for one in every]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("scale", SCALES)
def test_every_name_in_them_resolves(scale, tmp_path: Path) -> None:
    """No data is there: what is missing is said, and nothing is wrong."""
    jobs = {job for one in artifacts() for job in one.jobs(scale)}
    missing = missing_data(jobs, DataRegistry(None, tmp_path))
    assert jobs
    assert any(missing.values()) == (scale != "smoke")
    for job in jobs:
        assert not re.search(r"[\"':]/", json.dumps(dict(job.settings))), "a path"


@pytest.mark.slow
def test_all_of_it_runs_to_its_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "papers", "--all", "--smoke", "--jobs", "2"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = (tmp_path / "verdicts.md").read_text(encoding="utf-8")
    for one in artifacts():
        place = tmp_path / one.paper / one.name
        for suffix in ("md", "csv", *(["svg"] if "figure" in one.name else [])):
            file = place.with_suffix(f".{suffix}")
            assert str(file) in done.stdout
            assert file.stat().st_size > 100
        page = place.with_suffix(".md").read_text(encoding="utf-8")
        run = re.search(r"^- cells: (none|(\d+) of \2 run)", page, re.MULTILINE)
        assert run, (one.paper, one.name)
        assert f"[{one.paper} {one.name}]" in summary
