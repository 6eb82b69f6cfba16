"""Copies among texts: what counts as one, and what does not."""

import numpy as np
import pytest

from isotrope.diagnostics.probe import copied

ONE = "The quick brown fox jumps over the lazy dog"


@pytest.mark.parametrize(
    ("other", "copy"),
    [
        (ONE, True),
        (ONE.upper() + "!", True),
        (f"{ONE} (12)", True),
        (f"{ONE} again", True),  # 8 of 9 different words
        (f"{ONE} again and again and then once more", False),
        ("The quick brown cat walks past the lazy dog", False),
        ("Something else altogether, with other words in it", False),
    ],
)
def test_four_fifths_of_the_words(other: str, copy: bool) -> None:
    assert copied([ONE, other, "A third text that has nothing to do with these"]) == pytest.approx(
        2 / 3 if copy else 0
    )


def test_short_texts_and_texts_without_words_are_no_copies() -> None:
    assert copied(["New York", "new york", "42", "43", "...", ""]) == 0


def test_texts_of_a_group_are_no_copies_of_each_other() -> None:
    texts = [ONE, ONE.upper() + "!", "Something else altogether, with other words in it"]
    assert copied(texts, groups=np.array([0, 0, 1])) == 0
    groups = np.array([0, 0, 1, 2])
    assert copied([*texts, f"{ONE} (1)"], groups=groups) == pytest.approx(3 / 4)


def test_one_text_has_no_other() -> None:
    assert copied([ONE]) == 0
