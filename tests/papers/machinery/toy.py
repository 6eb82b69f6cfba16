"""A paper of our own: one kind of work, a table and a figure, in a folder that packages search."""

import sys
import textwrap
from pathlib import Path

import pytest

import papers
from papers import measurements
from papers.machinery import catalogue
from papers.machinery.job import PaperJob

WORK = '''
"""Counts how often it is asked; what it does stands in the settings."""

import os

import numpy as np

from isotrope.core.errors import Diverged, InputError
from isotrope.core.result import Result, provenance

def check(job, sources):
    if unknown := set(job.settings) - {"value", "fails", "diverges", "text", "needs", "bug"}:
        raise InputError(f"unknown setting {sorted(unknown)[0]!r}")
    needs = job.settings.get("needs")
    return [f"{needs}: there is none"] if needs else []

def run(job, sources, folder):
    folder.mkdir(parents=True, exist_ok=True)
    with (sources.generated.parent / "log.txt").open("a") as log:
        log.write(f"{job.settings.get('value')} {job.seed}\\n")
    print("what a library says")
    if job.settings.get("fails"):
        raise InputError("it cannot be done")
    if job.settings.get("diverges"):
        raise Diverged("training diverged: the loss is not finite at step 3")
    if job.settings.get("bug"):
        raise ZeroDivisionError("a bug")
    value = job.settings.get("value")
    return Result(
        "toy",
        "toy",
        {"value": float("nan") if value == "nan" else value},
        {"looks": [{"text": job.settings.get("text")}]},
        provenance(seed=job.seed, command=["/somewhere/isotrope", "toy"]),
        items={"each": np.zeros(3)},
    )
'''

TABLE = '''
"""Sheet 1: values."""

from papers.machinery.artifact import Rendered, Sheet
from papers.machinery.verdicts import Ruling
from papers.machinery.job import PaperJob
from tests.papers.machinery.toy import ASKED

def jobs(scale):
    return [PaperJob("toy", settings, seed) for settings in ASKED[scale] for seed in (0, 1)]

def render(scale, results):
    rows, means = [], []
    for settings in ASKED[scale]:
        spread = results.spread([PaperJob("toy", settings, seed) for seed in (0, 1)], "value")
        rows.append([str(settings.get("value")), spread and str(spread)])
        means.append(spread and spread.mean)
    known = [mean for mean in means if mean is not None]
    holds = known == sorted(known) if known else None
    return Rendered(
        tables=[Sheet(["paper", "ours"], rows, title="values | of toys")],
        verdicts=[Ruling("values rise", holds, f"{len(known)} of {len(means)}")],
        notes=["fewer toys than the paper has"],
    )
'''

FIGURE = '''
"""Figure 2: nothing but a picture."""

from papers.machinery.artifact import Rendered
from papers.plots.charts import Chart, Series, charts

def render(scale, results):
    draw = lambda: charts([Chart("toys", [Series("ours", [0.0, 1.0], [1.0, 2.0])])])
    return Rendered(pictures={"figure2": draw}, notes=["an illustration: there is nothing to test"])
'''

ROWS = """
[papers.toys]

[[artifact]]
paper = "toys"
name = "figure2"
title = "figure 2: a picture of toys"
by = "papers.toys.figure2:render"

[[artifact]]
paper = "toys"
name = "table1"
title = "table 1: values of toys"
by = "papers.toys.table1:render"
jobs = "papers.toys.table1:jobs"
"""

VALUES: list[dict[str, object]] = [{"value": 1.0}, {"value": 2.5}]
ASKED: dict[str, list[dict[str, object]]] = {}
"""What table 1 asks for at each scale; tests change it."""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the paper ``toys`` and the work ``toy`` be found, and no other paper."""
    for scale in ("smoke", "cpu", "paper"):
        monkeypatch.setitem(ASKED, scale, list(VALUES))
    (folder / "works").mkdir()
    (folder / "works" / "toy.py").write_text(textwrap.dedent(WORK), encoding="utf-8")
    (folder / "papers" / "toys").mkdir(parents=True)
    for name, text in (("table1", TABLE), ("figure2", FIGURE), ("__init__", "")):
        (folder / "papers" / "toys" / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(measurements, "__path__", [*measurements.__path__, str(folder / "works")])
    path = [*papers.__path__, str(folder / "papers")]
    monkeypatch.setattr(papers, "__path__", path)
    (folder / "artifacts.toml").write_text(ROWS, encoding="utf-8")
    monkeypatch.setattr(catalogue, "FILE", folder / "artifacts.toml")
    for name in [name for name in sys.modules if name.startswith("papers.toys")]:
        monkeypatch.delitem(sys.modules, name)  # an earlier test's, from another folder


def job(seed: int = 0, **settings: object) -> PaperJob:
    return PaperJob("toy", settings, seed)


def asked_for(output: Path) -> list[str]:
    """What was measured, in its order."""
    log = output / "log.txt"
    return log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
