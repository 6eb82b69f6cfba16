"""What is collected from installed packages, how it is cleaned, and how it is divided."""

import logging
import sys
from pathlib import Path

import pytest

from examples.docstrings import (
    STANDARD_LIBRARY,
    Documented,
    collect,
    split,
    split_docstring,
)
from isotrope.core.errors import InputError

KETTLE = '''
"""Module text is not a function and does not count."""

def boil(water, minutes):
    r"""Heat the water until it boils, e.g. for tea. Stop as soon as bubbles rise.

    The kettle switches itself off after :func:`~kettle.cool` was called or the lid is open.

    Parameters
    ----------
    water : float, optional
        Litres of ``cold`` water to fill in before heating.

    Examples
    --------
    >>> boil(1.0, 3)
    'hot'
    """

def _hidden():
    """Not public because of its name. Nobody should ever see these words in a corpus."""

class Cup:
    """A vessel that holds tea. It has one handle, holds a quarter of a litre and may break."""

    def pour(self):
        """Empty the cup over the sink. Nothing remains inside the vessel after that, not a drop."""

def short():
    """Too short. Rest."""

if True:
    def stir(spoon):
        """Move the spoon round and round. The sugar dissolves faster when the tea is warm."""
'''
TWIN = '''
def heat(water):
    """Heat the water until it boils, e.g. for tea! Other words about wholly other things follow."""

def mix(spoon):
    """Another sentence for the same rest. The sugar dissolves faster when the tea is warm."""

attach.add_newdoc("kettle._private", "whistle", """
whistle(volume) -> Sound

Make the sound of a finished kettle. It is loud enough to be heard in the next room.
""")
add_docstr(kettle.lid, r"""
Close the lid over the hot water. Steam leaves through the spout as soon as {it} is shut.
""".format(**common))
'''


@pytest.fixture
def kettle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package whose import would fail, so that only its source can be read."""
    package = tmp_path / "kettle"
    (package / "tests").mkdir(parents=True)
    (package / "_vendor").mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n" + KETTLE)
    (package / "_twin.py").write_text("PATTERN = '\\d'\n" + TWIN)
    (package / "broken.py").write_text("def (:\n")
    unseen = "def unseen():\n    'Check all the kettles. These are words that must not be seen.'\n"
    (package / "tests" / "test_kettle.py").write_text(unseen)
    (package / "_vendor" / "copy.py").write_text(unseen)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "kettle"


def test_the_package_is_read_and_not_imported(kettle: str) -> None:
    items = collect([kettle])
    names = [item.name for item in items]
    assert names == [
        "kettle.Cup", "kettle.Cup.pour", "kettle.boil", "kettle.lid", "kettle.mix", "kettle.whistle"
    ]  # fmt: skip
    assert kettle not in sys.modules
    assert collect([kettle]) == items == collect([kettle, kettle])


def test_twins_are_dropped(kettle: str) -> None:
    by_name = {item.name: item for item in collect([kettle])}
    assert "kettle.heat" not in by_name  # the query of kettle.boil
    assert "kettle.stir" not in by_name  # the target of kettle.mix
    assert len({item.query for item in by_name.values()}) == len(by_name)


def test_a_docstring_becomes_a_sentence_and_prose(kettle: str) -> None:
    boil = next(item for item in collect([kettle]) if item.name == "kettle.boil")
    assert boil.query == "Heat the water until it boils, e.g. for tea."
    assert boil.target == (
        "Stop as soon as bubbles rise. The kettle switches itself off after kettle.cool was called "
        "or the lid is open. water: Litres of cold water to fill in before heating."
    )


@pytest.mark.parametrize(
    ("docstring", "query", "target"),
    [
        ("", "", ""),
        ("One line without an end", "One line without an end", ""),
        ("Spread over\ntwo lines.\n\nMore.", "Spread over two lines.", "More."),
        ("First (see Fig. 2). Then.", "First (see Fig. 2).", "Then."),
        ("Use Python 3.11 or so. End.", "Use Python 3.11 or so.", "End."),
        ("f(x, y=(1, 2)) -> int\n\nAdd. Up.", "Add.", "Up."),
        ("A.\n\nArgs:\n    x (int, *optional*): The size.\n\nReturns:\n    A list.",
         "A.", "x: The size. A list."),
        ("A.\n\n:param x: the size\n:type x: int\n:returns: a list\n:rtype: list",
         "A.", "x: the size returns: a list"),
        ("A.\n\n>>> f(1)\n2\n\nB.\n\n```python\nf(2)\n```\n\nC.", "A.", "B. C."),
        ("A.\n\n.. note:: Mind the gap.\n\n.. math::\n\n    x = y\n\n.. versionadded:: 3\n   Ah.",
         "A.", "Mind the gap."),
        ("A.\n\nLike this::\n\n    code()\n\nB.\n\nExample::\n\n    code()\n",
         "A.", "Like this. B."),
        ("A.\n\nSee Also\n--------\nother : thing\n\nNotes\n-----\nAt :math:`n`, :math:`\\pi` [1]_",
         "A.", "At n,"),
        ("A.\n\nSee [`Cup`], [tea](https://tea.example) and **more** of *it* at https://x.example/y",
         "A.", "See Cup, tea and more of it at"),
        ("A.\n\n+---+---+\n| a | b |\n+---+---+\n\n- one\n- two", "A.", "one two"),
    ],
)  # fmt: skip
def test_cleaning(docstring: str, query: str, target: str) -> None:
    assert split_docstring(docstring) == (query, target)


def test_a_missing_package_is_named(kettle: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert collect([kettle, "no_such_package_here"]) == collect([kettle])
    assert "not installed, skipped: no_such_package_here" in caplog.text


@pytest.mark.parametrize("packages", [["no_such_package_here"], []])
def test_no_package_at_all(packages: list[str]) -> None:
    with pytest.raises(InputError, match="no docstrings to read: no installed package among"):
        collect(packages)


def test_split_is_disjoint_complete_and_seeded() -> None:
    items = [Documented(f"room.f{i:02}", f"Question {i}.", f"Answer {i}.") for i in range(40)]
    train, heldout = split(items, 10, seed=3)
    assert len(heldout) == 10
    assert sorted([*train, *heldout], key=lambda item: item.name) == items
    assert split(items, 10, seed=3) == (train, heldout)
    assert split(items, 10, seed=4)[1] != heldout


@pytest.mark.parametrize("holdout", [0, 2, 5])
def test_split_refuses_what_it_cannot_hold_out(holdout: int) -> None:
    items = [Documented("a", "b", "c"), Documented("d", "e", "f")]
    with pytest.raises(InputError, match=f"cannot hold out {holdout} of 2 documented functions"):
        split(items, holdout, seed=0)


@pytest.mark.slow  # it reads the standard library
def test_the_standard_library_has_hundreds() -> None:
    items = collect([STANDARD_LIBRARY])
    assert len(items) > 500
    assert [item.name for item in items] == sorted(item.name for item in items)
    assert not any(">>>" in item.target or "`" in item.target for item in items)
