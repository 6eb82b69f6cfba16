"""BibTeX of every objective."""

import doctest
import re

import pytest

from isotrope.core import hyper
from isotrope.core.hyper import Paper, bibtex
from isotrope.paradigm import registry


def test_doctests() -> None:
    assert doctest.testmod(hyper).attempted
    assert not doctest.testmod(hyper).failed


@pytest.mark.parametrize("name", registry.names())
def test_every_entry_has_a_key_a_title_authors_and_a_year(name: str) -> None:
    paper = registry.find(name).paper
    entries = bibtex(paper).split("\n\n")
    assert len(entries) == len(paper.title.split("; "))
    for entry in entries:
        assert re.match(r"@misc\{[a-z]+\d{4},\n    title=\{.+\},\n    author=\{.+\}", entry)
        assert re.search(r"\n    year=\{(19|20)\d\d\}", entry)
        assert entry.count("{") == entry.count("}")
        assert "et al." not in entry.partition("author=")[2].partition("\n")[0]


def test_what_is_no_reference_stands_as_it_is() -> None:
    assert bibtex(Paper("none", "none", "none")) == (
        "@misc{none,\n    title={none},\n    author={none}\n}"
    )
    assert bibtex(Paper("T", "2021!", "")).startswith("@misc{unknown,")
