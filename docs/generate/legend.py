"""Explains the letters GD, W and R, in one line for every page that uses them."""

import re

LETTERS = {
    "GD": "GD (gradient dissipation) is a factor on the whole gradient of an anchor: with 1, the "
    "anchor learns at full strength; with 0, it does not learn.",
    "W": "W (weight) is the strength with which each negative pushes the anchor.",
    "R": "R (ratio) is the strength with which the positive pulls the anchor, divided by the "
    "summed strength of the negatives.",
}
_USED = re.compile(r"\b(GD|W|R)(?:\b|_|\\_)(?!\()")


def legend(text: str, *, everything: bool = False) -> str:
    """Return a line that explains the letters that a page uses; empty if it uses none of them."""
    used = set(_USED.findall(text))
    if "GD" not in used and not everything:
        return ""  # a lone W or R is another letter
    shown = (
        LETTERS if everything else {letter: LETTERS[letter] for letter in LETTERS if letter in used}
    )
    return " ".join(shown.values())
