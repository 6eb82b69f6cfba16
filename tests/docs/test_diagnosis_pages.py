"""The pages on diagnosis: what is committed is what rules and thresholds say."""

import re
import shutil
from pathlib import Path

import pytest

from docs.build import DECIDING, DIAGNOSES
from docs.generate.diagnosis_pages import (
    diagnosis_page,
    verdict_page,
    with_limit,
    write_diagnosis_pages,
)
from isotrope.diagnostics.findings import HEALTHY
from isotrope.diagnostics.verdict import THRESHOLDS, compared
from isotrope.diagnostics.verdicts import VERDICTS

DOCS = Path(__file__).resolve().parents[2] / "docs"
ZOO = DOCS / "results" / "zoo.csv"


def page(word: str) -> str:
    return (DOCS / "diagnoses" / f"{word}.md").read_text("utf-8")


def test_the_committed_pages_are_up_to_date(tmp_path: Path) -> None:
    shutil.copytree(DOCS / "diagnoses", tmp_path / "diagnoses")
    written = write_diagnosis_pages(tmp_path, ZOO)
    assert len(written) == len(VERDICTS)  # the table, and all but healthy
    for file in written:
        committed = DOCS / file.relative_to(tmp_path)
        assert committed.read_text("utf-8") == file.read_text("utf-8"), "out of date: make docs"
    there = {file.name for file in (DOCS / "diagnoses").iterdir()}
    assert there == {file.name for file in written[1:]}


def test_the_printed_diagnoses_have_the_limit_of_the_record() -> None:
    for file in DIAGNOSES:
        text = file.read_text("utf-8")
        assert "(a fault if " in text
        assert with_limit(text, DECIDING) == text, "out of date: make docs"
    shown = THRESHOLDS[DECIDING]
    old = f"   - {shown.label}: 1.5 times 7 (a fault if above 9)\n   source: x\n   y\n   change: z"
    lines = with_limit(old, DECIDING).splitlines()
    assert lines[0] == f"   - {compared(DECIDING, 1.5)}"
    assert lines[1].startswith(f"   source: {shown.source[:40]}")
    assert lines[-1] == "   change: z"


@pytest.mark.parametrize("word", [word for word in VERDICTS if word != HEALTHY])
def test_the_words_written_by_hand_repeat_no_limit(word: str) -> None:
    """A changed threshold changes the tables only: `make docs` writes them."""
    words = page(word).split("## What to do")[1].partition("| threshold |")[0]
    words = re.sub(r"`.*?`|^\d\.|^\|.*|^In this table.*|\]\(.*?\)", "", words, flags=re.MULTILINE)
    numbers = set(re.findall(r"(?<![\w.])-?\d[\d.]*(?:e-?\d+)?%?", words.replace("\u2212", "-")))
    values = [threshold.value for threshold in VERDICTS[word].thresholds]
    limits = {text for value in values for text in (f"{value:g}", f"{100 * value:g}%")}
    assert not numbers & limits, "name the threshold instead of its limit"


@pytest.mark.parametrize("word", VERDICTS)
def test_a_change_with_a_fixed_value_is_only_in_the_record(word: str) -> None:
    change = VERDICTS[word].change.train
    if isinstance(change, str) and change.startswith("--"):
        flag = " ".join(change.split()[:2])
        advice = page(word).split("## What to do")[1].partition("\n## ")[0]
        assert advice.count(f"`{flag}`") == 1, "make docs writes it; leave it out by hand"


def test_a_new_verdict_needs_its_advice() -> None:
    with pytest.raises(ValueError, match=r"overfitting\.md has no section 'What to do'; write it"):
        verdict_page("overfitting", ZOO, "")


def test_the_tables_have_every_verdict_and_threshold() -> None:
    text = diagnosis_page(ZOO)
    assert all(f"| `{name}` |" in text for name in (*THRESHOLDS, HEALTHY))
    assert all(f"| [`{w}`](diagnoses/{w}.md) |" in text for w in VERDICTS if w != HEALTHY)


@pytest.mark.parametrize("word", [word for word in VERDICTS if word != HEALTHY])
def test_every_verdict_says_what_decides(word: str) -> None:
    text = verdict_page(word, ZOO, page(word))
    heads = ("What it means", "What to do", "An example", "When to ignore it", "What decides")
    places = [text.index(f"\n## {head}\n\n") for head in heads]
    assert places == sorted(places)
    blank, rule, *_ = text.split("## What decides")[1].split("\n\n")[0:3]
    assert not blank
    assert not rule.startswith("|"), "the record does not say how its thresholds decide"
    assert "| `" in text.split("## What decides")[1].split("\n## ")[0]


def test_cause_and_effect_and_what_was_broken_on_purpose() -> None:
    text = verdict_page("collapsed", ZOO, page("collapsed"))
    causes = text.split("which can cause `collapsed`, leaves it out: ")[1]
    assert causes.startswith("[`pushed-positives`](pushed-positives.md), [`no-negatives`]")
    assert "`--weight-decay 5e-4`" in text
    assert "(1e30" not in text
    assert "above 1e30" in verdict_page("diverging", ZOO, page("diverging")), "two rules come to it"
    assert "no training was built to get it" in verdict_page(
        "overfitting", ZOO, page("overfitting")
    )
