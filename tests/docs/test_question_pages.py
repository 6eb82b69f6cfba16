"""The page on public questions is what was measured."""

import csv
from pathlib import Path

from docs.generate.question_pages import SYMPTOMS, question_page, write_question_page
from isotrope.diagnostics.findings import HEALTHY
from isotrope.diagnostics.verdicts import VERDICTS

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = DOCS / "results" / "questions.csv"


def test_the_committed_page_is_up_to_date(tmp_path: Path) -> None:
    file = write_question_page(tmp_path, RESULTS)
    committed = (DOCS / file.name).read_text(encoding="utf-8")
    assert committed == file.read_text(encoding="utf-8"), "out of date: make docs"


def test_each_row_is_judged_by_what_was_expected() -> None:
    with RESULTS.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) >= 20
    judging = [row for row in rows if row["judges"] == "yes"]
    assert len(judging) >= 20
    assert sum(row["right"] == "yes" for row in judging) >= 0.9 * len(judging)
    for row in rows:
        verdicts = row["verdict"].split(", ")
        named = row["verdict"] if verdicts[0] == HEALTHY else verdicts[0]
        undone = named not in row["verdict_after"].split(", ")
        right = named in row["expected"].split(" | ") and undone
        assert row["right"] == ("yes" if right else "no")
        assert row["url"].startswith("https://github.com/")
        assert row["expected"]
        assert set(verdicts) <= set(VERDICTS)


def test_misses_are_in_the_table(tmp_path: Path) -> None:
    with RESULTS.open(newline="", encoding="utf-8") as handle:
        first, *_ = rows = list(csv.DictReader(handle))
    first |= {"right": "no", "verdict": HEALTHY, "verdict_after": ""}
    file = tmp_path / "questions.csv"
    with file.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(first))
        writer.writeheader()
        writer.writerows(rows)
    text = question_page(file)
    assert f"- {first['id']}: expected {first['expected'].replace(' | ', ' or ')}, got" in text


def test_each_symptom_has_a_number_or_another_help() -> None:
    text = question_page(RESULTS)
    for symptom in SYMPTOMS:
        (line,) = [row for row in text.splitlines() if row.startswith(f"| {symptom.name} |")]
        assert symptom.numbers or (symptom.other and not symptom.verdicts)
        assert (symptom.numbers or symptom.other) in line
