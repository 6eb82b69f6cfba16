"""Which texts count as the same, and which rows share a text."""

import numpy as np
import pytest

from isotrope.data.text import repeats
from isotrope.data.text.repeats import (
    groups_of,
    hash64,
    joined_groups,
    letters,
    near_identical,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Don't panic!", "dont  PANIC"),
        ("Straße", "STRASSE"),
        ("ﬁne ½", "fine 1⁄2"),
        ("Ａ１", "a1"),
        ("über-all", "Über all"),
        ("It was 2019.", "it was: 2019"),
        ("COVID-19?", "covid 19"),
        ("run `ls` first", "Run 'ls' first"),
        ("\N{MINUS SIGN}5 ½", "-5 1/2"),
        *((f"2019{dash}2020", "2019-2020") for dash in "\N{EN DASH}\N{EM DASH}\N{HYPHEN}"),
        ("over\N{EN DASH}5", "over-5"),
        ("1,000,000 people", "1000000 people"),
        ("**Note** this", "Note this"),
        ("This is **why?** **note**: **café**", "This is why? note: café"),
    ],
)
def test_near_identical(one: str, other: str) -> None:
    assert near_identical(one) == near_identical(other)


@pytest.mark.parametrize(
    ("one", "other"), [("a b", "a c"), ("!!!", "???"), ("🙂", "🙃"), ("été", "ete"), ("", "!")]
)
def test_different(one: str, other: str) -> None:
    assert near_identical(one) != near_identical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *[("C++", "C#"), ("C", "C#"), ("x > 0", "x < 0"), ("a & b", "a | b"), ("a", "*a")],
        *[("1.5 mg", "15 mg"), ("1,5", "15"), ("-5", "5"), ("f(-3)", "f(3)"), ("x[2:]", "x[:2]")],
        *[("a != b", "a = b"), ("a -> b", "a > b"), ("/tmp/a", "tmp/a"), (r"\d", "d")],
        *[("5-10", "510"), ("1,50", "150"), ("1,0000", "10000"), ("a ** b", "a b"), ("2**3", "23")],
        *[("10**-3", "10-3"), ("x**(n-1)", "x(n-1)"), ("f(x, **kw)", "f(x, kw)"), ("{**a}", "{a}")],
        *[("range(1,100)", "range(1100)"), ("[1,200,300]", "[1200300]"), ("a/**/b", "a//b")],
        *[("f(**a)", "f(a)"), ("$100", "100%"), ("€1", "£1"), ("5°", "5"), ("ok 👍", "ok 👎")],
    ],
)
def test_signs_of_code_numbers_and_prices_tell_texts_apart(one: str, other: str) -> None:
    assert near_identical(one) != near_identical(other)
    assert near_identical(one + " é") != near_identical(other + " é")  # not ASCII
    assert letters(one) == letters(other)  # what is held out does not depend on signs


@pytest.mark.parametrize(
    ("one", "other"),
    [("वह जाता है", "वह जाती है"), ("कल", "काला"), ("ไม่", "ไม้"), ("மலை", "மாலை"), ("খান", "খুন")],
)
def test_marks_of_vowels_and_tones_tell_words_apart(one: str, other: str) -> None:
    assert near_identical(one) != near_identical(other)


def test_ascii_takes_no_other_road() -> None:
    text = "".join(map(chr, range(128)))
    assert near_identical(text) == near_identical(text + "¡")


def test_hash_is_fixed_and_keyed() -> None:
    # stores on disk and held-out choices rest on these values
    assert hash64(b"a") == hash64(b"a", b"") == 0x2F42665B399EF840
    assert hash64(b"a", b"1") != hash64(b"a", b"2") != hash64(b"a")


def test_groups_are_connected_through_other_rows() -> None:
    chain = np.array([[5, 6], [4, 5], [3, 4], [0, 9]])
    assert groups_of(chain, 10).tolist() == [0, 1, 2, 3, 3, 3, 3, 7, 8, 0]
    assert groups_of(np.zeros((0, 2), np.int64), 3).tolist() == [0, 1, 2]


class _Counted:
    """numpy, which counts the rounds in which groups are joined."""

    rounds = 0

    def __getattr__(self, name: str) -> object:
        self.rounds += name == "minimum"
        assert self.rounds < 60
        return getattr(np, name)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_long_chain_takes_few_rounds(monkeypatch: pytest.MonkeyPatch, ordered: bool) -> None:
    monkeypatch.setattr(repeats, "np", _Counted())
    names = np.arange(200_001) if ordered else np.random.default_rng(0).permutation(200_001)
    chain = np.stack([names[:-1], names[1:]], axis=1).astype(np.uint64)
    assert not joined_groups(chain).any()


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_a_group_has_the_lowest_hash_of_its_rows(columns: int) -> None:
    random = np.random.default_rng(columns)
    for n in (0, 1, 5, 40):
        marks = random.integers(0, 2 * n + 1, (n, columns)).astype(np.uint64) << np.uint64(55)
        lowest = marks.min(axis=1, initial=2**64 - 1)
        for _ in range(n):  # one hop at a time
            for column in marks.T:
                for value in np.unique(column):
                    rows = (marks == value).any(axis=1)
                    lowest[rows] = lowest[rows].min()
        assert joined_groups(marks).view(np.uint64).tolist() == lowest.tolist()
