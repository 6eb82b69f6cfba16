"""Pages that a user reads have no private words: CONTRIBUTING.md lists what to write instead."""

import re
from pathlib import Path

import pytest

from docs.generate.legend import LETTERS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    *(ROOT / "docs" / f"{n}.md" for n in ("api", "benchmarks", "faq", "index", "install")),
    *(ROOT / "docs" / f"{n}.md" for n in ("errata", "reliability", "replication", "reproduce")),
]
# what a pattern finds: code, links, comments and indented blocks are left out
NOT_PROSE = re.compile(
    r"^```.*?^```$|`[^`]*`|\]\([^)]*\)|<!--.*?-->|^ {4}[^\n]*", re.DOTALL | re.MULTILINE
)
WORDS = {
    r"paper 00\d": "author and year",
    r"\bzoo\b": "benchmark of broken trainings",
    r"\banimals?\b": "training",
    r"\b(?-i:[sS]ick)\b": "faulty",  # SICK is a data set
    r"\bcells? of\b": "measurement",
    r"untrained (all-)?MiniLM": "before fine-tuning",
    r"not in CI": "<!-- not run: REASON -->",
    r"(?<![\w.*])\.\d": "a zero before the point",
    r"script not kept": "a link to the log",
}


# notation defines the letters in a table of its own
GENERATED = [
    *(
        p
        for folder in ("objectives", "commands", "diagnoses")
        for p in (DOCS / folder).glob("*.md")
    ),
    DOCS / "results" / "claims.md",
]


@pytest.mark.parametrize("page", [*PAGES, *GENERATED], ids=lambda page: page.stem)
def test_a_page_with_gd_says_what_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    plain = " ".join(text.replace("*", "").split())
    assert not re.search(r"\bGD\b", plain) or LETTERS["GD"] in plain


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_private_words(page: Path) -> None:
    prose = NOT_PROSE.sub("", page.read_text(encoding="utf-8"))
    assert not wrong(prose)


def wrong(prose: str) -> list[str]:
    return [
        f"{found[0]!r}: write {instead}"
        for word, instead in WORDS.items()
        for found in re.finditer(word, prose, re.IGNORECASE)
    ]


def test_they_are_found() -> None:
    text = "As paper 004 says, an animal of the zoo is sick; the untrained MiniLM lost .05."
    assert len(wrong(text)) == 6
    assert not wrong("A training of Manna et al. 2023 lost 0.05 on SICK in version 1.2.3.")


def test_contributing_lists_what_to_write_instead() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("## House words")[1].split("\n## ")[0]
    for word in ("paper 000", "zoo", "animal", "sick", "untrained MiniLM", "not in CI", ".05"):
        assert f"| {word}" in table
