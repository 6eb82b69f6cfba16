"""What the letters GD, W and R mean, in one line for every page that uses them."""

import re

LETTERS = {
    "GD": "GD (dissipation) is a factor on an anchor's whole gradient: 1 while everything is left "
    "to learn, 0 when nothing is.",
    "W": "W (weight) is the push of each negative on the anchor.",
    "R": "R (ratio) is the pull of the positive relative to this push.",
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
