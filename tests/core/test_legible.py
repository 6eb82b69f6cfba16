"""Words with counts, in messages."""

import pytest

from isotrope.core.legible import counted


@pytest.mark.parametrize(
    ("count", "noun", "shown"),
    [
        (1, "query", "1 query"),
        (0, "query", "0 queries"),
        (2_000, "query", "2,000 queries"),
        (1, "row", "1 row"),
        (3, "row", "3 rows"),
    ],
)
def test_a_noun_agrees_with_its_count(count: int, noun: str, shown: str) -> None:
    assert counted(count, noun) == shown
