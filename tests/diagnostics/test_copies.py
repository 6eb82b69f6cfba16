"""Copies among texts: what counts as one, and what does not."""

import pytest

from isotrope.diagnostics.copies import copied

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


def test_training_sees_to_the_same_letters_by_itself() -> None:
    texts = [ONE, ONE.upper() + "!", "Something else altogether, with other words in it"]
    assert copied(texts, guarded=True) == 0
    assert copied([*texts, f"{ONE} (1)"], guarded=True) == pytest.approx(3 / 4)


def test_one_text_has_no_other() -> None:
    assert copied([ONE]) == 0
