"""Artifacts are found by their place; numbers over seeds; what is shown of them."""

import csv
import dataclasses
import io
from pathlib import Path

import pytest

from isotrope.core import InputError, MissingExtra, Result
from papers.machinery import pages
from papers.machinery.artifact import Artifact, Rendered, Results, Sheet, no_jobs
from papers.machinery.catalogue import artifacts, find_artifacts
from papers.machinery.rows import Row, function
from papers.machinery.verdicts import Answer, Ruling, Spread, UnmatchedKind, with_kinds
from tests.papers.machinery.toy import job

TOY = Artifact(
    title="table 1: toys", jobs=no_jobs, render=lambda *_: Rendered(), paper="p", name="t"
)


def result(value: float | str | None, **provenance: object) -> Result:
    return Result("toy", "toy", {"value": value}, {}, dict(provenance))


def test_they_are_found_by_their_place(toys: Path) -> None:
    assert [(a.paper, a.name, a.title) for a in artifacts()] == [
        ("toys", "figure2", "figure 2: a picture of toys"),
        ("toys", "table1", "table 1: values of toys"),
    ]
    assert [a.name for a in find_artifacts("toys", ["table1", "figure2", "table1"])] == [
        "table1",
        "figure2",
    ]
    assert [a.name for a in find_artifacts("toys", [])] == ["figure2", "table1"]


def test_what_is_not_there_is_near_something(toys: Path) -> None:
    with pytest.raises(InputError, match=r"unknown paper 'toy' \(did you mean 'toys'\?\)"):
        find_artifacts("toy", [])
    with pytest.raises(InputError, match=r"unknown paper 'table1' \(table1 of which one\? toys\)"):
        find_artifacts("table1", [])
    with pytest.raises(
        InputError, match=r"no 'table2' \(did you mean 'table1'\?\); it has figure2"
    ):
        find_artifacts("toys", ["table2"])


def test_a_package_that_is_not_installed_names_its_extra(toys: Path) -> None:
    folder = toys.parent / "papers" / "toys"
    (folder / "table8.py").write_text("import no_such_package\n")
    with pytest.raises(MissingExtra, match=r"\.\[all\].*'no_such_package'"):
        function("papers.toys.table8:render")
    (folder / "table7.py").write_text("import isotrope.no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match=r"isotrope\.no_such_module"):
        function("papers.toys.table7:render")


def test_mean_and_deviation_of_what_was_run() -> None:
    jobs = [job(seed) for seed in range(4)]
    found = Results({jobs[0]: result(1.0), jobs[1]: result(2.0), jobs[2]: result(None)})
    spread = found.spread(jobs, "value")
    assert spread == Spread(1.5, pytest.approx(0.7071068), 2)
    assert str(spread) == "1.50 ± 0.71"
    assert str(found.spread(jobs[:1], "value")) == "1.00"
    assert found.spread(jobs[2:], "value") is None
    assert found.spread(jobs, "other") is None
    assert found.get(jobs[3]) is None


@pytest.mark.parametrize(
    ("holds", "word"),
    [(True, "replicated"), (False, "contradicted"), ("undecided",) * 2, (None, "undecided")],
)
def test_a_verdict_has_a_word(holds: Answer, word: str) -> None:
    assert Ruling("claim", holds).word == word
    assert Ruling("claim", holds, erratum="E7").word == "erratum E7"
    assert Ruling("claim", holds, untestable="no data").word == "not testable here"


@pytest.mark.parametrize(
    ("comparison", "answer"),
    [
        ("<metric value of toys> > 1", True),
        ("<metric value of toys> < 1", False),
        ("<metric value of toys> < 9", True),
        ("not <metric value of toys> < 9", False),
        ("<metric value of toys> < 2.05", "undecided"),
        ("mean <metric value of toys> < 9", True),
        ("not mean <metric value of toys> < 9", False),
    ],
)
def test_a_comparison_has_the_answer_of_its_sign(comparison: str, answer: Answer) -> None:
    jobs = [job(seed) for seed in range(3)]
    results = Results({one: result(2.0 + 0.1 * one.seed) for one in jobs})
    claim = {"says": "as compared", "holds": [comparison]}
    row = Row({"name": "t", "claim": [claim]}, "cpu", results, lambda scale, name: jobs)
    (ruling,) = row.rendered().verdicts
    assert ruling.holds == answer


def test_no_interval_decides_that_two_are_equal() -> None:
    claim = {"says": "as compared", "holds": ["<metric value of toys> = 2"]}
    row = Row({"name": "t", "claim": [claim]}, "cpu", Results(), lambda scale, name: [job(0)])
    with pytest.raises(AssertionError, match="decides that two are equal"):
        row.rendered()


def test_checks_are_of_this_software() -> None:
    words = [Ruling("ours", holds, check=True).word for holds in (True, False, None)]
    assert words == ["check passes", "check fails", "check not run"]


def test_kinds_are_of_claims_that_are_there() -> None:
    """Errata at every scale; what cannot be tested at that of a CPU alone."""
    found = [Ruling("MoCo v2 gains", None), Ruling("MoCo v3", None), Ruling("DINO", None)]
    for cpu in (True, False):
        words = {v.word for v in with_kinds("cosine-pitfalls table4", found, cpu=cpu)}
        assert words == {"not testable here" if cpu else "undecided"}
    with pytest.raises(UnmatchedKind, match="align-uniform figure4: 'right as printed' is in 0"):
        with_kinds("align-uniform figure4", found, cpu=False)
    twice = [Ruling("right as printed", False)] * 2
    with pytest.raises(UnmatchedKind, match="is in 2 claims"):
        with_kinds("align-uniform figure4", twice, cpu=False)


def test_text_markdown_and_csv_say_the_same() -> None:
    shown = Rendered(
        tables=[Sheet(["a|b", "ours"], [["x, y", "1.00"], ["z", None]], title="first | table")],
        verdicts=[Ruling("x is more", True, "1.00"), Ruling("z is", None)],
        notes=["a note"],
    )
    about = {"command": "python -m papers p t"}
    text = pages.as_text(TOY, shown)
    assert text.startswith("p, table 1: toys\n\nfirst | table\na|b   ours\n")
    assert "z     not run" in text
    assert "replicated: x is more (1.00)\nundecided: z is\nnote: a note" in text
    page = pages.as_markdown(TOY, shown, about, ["t"])
    for line in (
        "| a\\|b | ours |",
        "| z | not run |",
        "- **replicated**: x is more (1.00)",
        "![t](t.svg)",
        "- a note",
        "- command: python -m papers p t",
    ):
        assert line in page.splitlines()
    rows = list(csv.reader(io.StringIO(pages.as_csv(shown))))
    assert rows[0] == ["table", "a|b", "ours"]
    assert rows[1:3] == [["first | table", "x, y", "1.00"], ["first | table", "z", "not run"]]
    assert ["replicated", "x is more", "1.00"] in rows
    assert ["note", "a note"] in rows


def test_where_numbers_come_from() -> None:
    known = {"versions": {"isotrope": "1", "torch": "2"}, "machine": "EPYC", "threads": 1}
    jobs = {
        job(0): result(1.0, **known, seconds=50.0),
        job(3): result(1.0, **known, seconds=40.0),
        job(1): result(1.0, **{**known, "threads": 2}, seconds=None),
    }
    about = pages.provenance_of(TOY, "cpu", Results(jobs), 5)
    assert about == {
        "command": "python -m papers p t --scale cpu",
        "scale": "cpu",
        "cells": "3 of 5 run",
        "seeds": "0, 1, 3",
        "versions": "isotrope 1, torch 2",
        "machine": "EPYC, 1 thread a cell; EPYC, 2 threads a cell",
        "duration": "1 min 30 s, all cells one after the other",
    }
    formulas = pages.provenance_of(TOY, "cpu", Results({}), 0)
    assert formulas["cells"] == "none: computed from formulas"
    assert "seeds" not in formulas
    elsewhere = dataclasses.replace(TOY, jobs=lambda scale: [job(0)] if scale == "paper" else [])
    none_here = pages.provenance_of(elsewhere, "cpu", Results({}), 0)
    assert none_here["cells"] == "none at this scale"
    unknown = pages.provenance_of(TOY, "cpu", Results({job(0): result(1.0)}), 1)
    assert unknown["machine"] == "unknown"


def test_a_page_of_all_claims_leaves_none_out() -> None:
    own = Rendered(verdicts=[Ruling("a | b", True, "1"), Ruling("c", False), Ruling("d", None)])
    others = [Ruling("e", False, erratum="E2"), Ruling("f", True, check=True)]
    rest = Rendered(verdicts=[*others, Ruling("g", False, untestable="no data")])
    page = pages.summary([(TOY, own), (TOY, rest)], "smoke")
    assert "4 claims: 1 replicated, 1 undecided, 1 contradicted, 1 not testable here." in page
    assert "1 further ones are errata, or" in page
    assert "1 of 1 checks of this software pass" in page
    assert pages.MEANINGLESS in page
    claims, errata = page.split("## Errata")
    assert "| [p t](p/t.md) | a \\| b | replicated | 1 |" in claims
    assert "| [p t](p/t.md) | g | not testable here | no data |" in claims
    assert "| e | [erratum E2](../../errata.md#E2) |  |" in errata
    assert pages.MEANINGLESS not in pages.summary([(TOY, own)], "cpu")
