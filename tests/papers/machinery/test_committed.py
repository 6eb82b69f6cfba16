"""The tables of `make reproduce` in docs/results are those of the jobs beside them."""

import re
from pathlib import Path

import pytest

from papers.machinery.artifact import Artifact, Results
from papers.machinery.catalogue import artifacts
from papers.machinery.pages import as_csv, render
from papers.machinery.store import JobStore
from papers.machinery.verdicts import WORDS

FOLDER = Path(__file__).parents[3] / "docs" / "results" / "reproduce"
WRITTEN = [one for one in artifacts() if (FOLDER / one.paper / f"{one.name}.csv").is_file()]


@pytest.fixture(scope="module")
def store() -> JobStore:
    return JobStore(FOLDER / "cells")


@pytest.mark.parametrize(
    "artifact",
    [one for one in WRITTEN if one.jobs("cpu")],
    ids=lambda one: f"{one.paper} {one.name}",
)
def test_tables_and_verdicts_are_what_the_cells_say(artifact: Artifact, store: JobStore) -> None:
    jobs = {job: store.find(job) for job in artifact.jobs("cpu")}
    every = Results({job: result for job, result in jobs.items() if result is not None})
    shown = render(artifact, "cpu", every)
    file = FOLDER / artifact.paper / f"{artifact.name}.csv"
    assert as_csv(shown) == file.read_text(encoding="utf-8"), "make reproduce"


def test_pages_and_pictures_stand_beside_them() -> None:
    assert WRITTEN
    for one in WRITTEN:
        page = (FOLDER / one.paper / f"{one.name}.md").read_text(encoding="utf-8")
        assert f"python -m papers {one.paper} {one.name} --scale cpu" in page
        for line in page.splitlines():
            if line.startswith("!["):
                assert (FOLDER / one.paper / line.partition("](")[2].rstrip(")")).is_file()


def test_all_was_run_to_its_end_and_is_counted_so() -> None:
    assert artifacts() == WRITTEN
    pages = [FOLDER / one.paper / f"{one.name}.md" for one in WRITTEN]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    count = {word: text.count(f"\n- **{word}**") for word in WORDS}
    told = ", ".join(f"{number} {word}" for word, number in count.items() if number)
    summary = (FOLDER / "verdicts.md").read_text(encoding="utf-8")
    assert f"\n{sum(count.values())} claims: {told}. " in summary
    assert f" {text.count('- **[erratum ')} further ones are errata, or" in summary
    assert "check fails" not in text


def test_cells_say_nothing_of_where_they_were_measured() -> None:
    files = list((FOLDER / "cells").iterdir())
    assert files
    for file in files:
        assert not re.search(r'["=]/\w', file.read_text(encoding="utf-8")), file.name
