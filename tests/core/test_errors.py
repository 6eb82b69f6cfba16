"""Errors a user can cause: their messages, and the nearest name."""

import pytest

from isotrope.core.errors import InputError, MissingExtra, nearest


def test_a_missing_extra_says_what_to_install() -> None:
    error = MissingExtra("pyarrow", extra="parquet")
    assert isinstance(error, InputError)
    assert isinstance(error, ValueError)
    assert "'pyarrow', which is not installed: pip install '.[parquet]'" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("infonec", " (did you mean 'infonce'?)"),
        ("barlow", " (did you mean 'barlowtwins'?)"),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_nearest(word: str, expected: str) -> None:
    assert nearest(word, ["infonce", "barlowtwins"]) == expected


def test_nearest_takes_any_iterable_and_none_is_near_in_an_empty_one() -> None:
    assert nearest("infonec", iter({"infonce": 1})) == " (did you mean 'infonce'?)"
    assert nearest("infonce", []) == ""
