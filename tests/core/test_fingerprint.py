"""Fingerprints: equal content gives equal digits, and nothing else does."""

from dataclasses import dataclass

import numpy as np
import pytest

from isotrope.core.fingerprint import fingerprint


@dataclass
class Pair:
    a: object
    b: object


@dataclass
class Other:
    a: object
    b: object


def test_equal_content() -> None:
    assert fingerprint({"b": 1, "a": [2]}) == fingerprint({"a": [2], "b": 1})
    assert fingerprint(["a", "b"]) == fingerprint(("a", "b"))
    rows = np.arange(12.0).reshape(3, 4)
    assert fingerprint(rows.T) == fingerprint(rows.T.copy())
    assert fingerprint(Pair("x", rows)) == fingerprint(Pair("x", rows.copy()))
    assert fingerprint(iter("ab")) == fingerprint(letter for letter in ["a", "b"])
    assert fingerprint("\ud800") == fingerprint("\ud800")  # half a surrogate pair
    assert len(fingerprint()) == 16


def test_a_written_value_stays() -> None:
    """Finished evaluations on disk are found by it."""
    assert fingerprint("a", [1, 2.5, None], {"k": np.zeros(2)}) == "72779e884cfba43a"


def test_other_content() -> None:
    values = [
        [],
        [[]],
        None,
        "None",
        0,
        0.0,
        False,
        "0",
        b"0",
        "",
        ["ab", "c"],
        ["a", "bc"],
        ["abc"],
        [["a"], "b"],
        {"a": "b"},
        {"a": "c"},
        np.array([0]),
        np.array([0.0]),
        np.array([[0]]),
        np.array([1]),
        Pair(1, 2),
        Pair(2, 1),
        Other(1, 2),
        iter(["ab", "c"]),
        [iter(["ab"]), "c"],
    ]
    assert len({fingerprint(value) for value in values}) == len(values)


def test_what_has_none() -> None:
    for value in (object(), Pair, {1, 2}, np.array(["a"], dtype=object)):
        with pytest.raises(TypeError, match="use numbers, texts or arrays; found the"):
            fingerprint([value])
