"""Bad input: every malformed file, setting, flag and model folder that we could think of.

``corpus()`` is the list of them. Each is refused with exit code 2 and one line on stderr, which
starts with ``isotrope: error:``, in seconds at most, and nothing is written anywhere.
``python -m tests.inputs`` tries all of them and prints how many there are and which failed.
"""

from collections import Counter
from functools import cache

from tests.inputs.case import Bench, Case, tried

__all__ = ["Bench", "Case", "corpus", "summary", "tried"]


@cache
def corpus() -> tuple[Case, ...]:
    """Return all cases; their names are ``area/what is wrong``."""
    from tests.inputs import flags, images, models, places, runs, scored, settings, text

    rooms = (text, scored, images, places, settings, flags, models, runs)
    found = tuple(case for room in rooms for case in room.cases())
    twice = [name for name, n in Counter(case.name for case in found).items() if n > 1]
    assert not twice, f"two cases are called {twice[0]}"
    return found


def summary() -> dict[str, int]:
    """Return how many cases there are of each area."""
    return dict(Counter(case.name.partition("/")[0] for case in corpus()))
