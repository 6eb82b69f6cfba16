"""Pictures of embeddings in training: what is drawn, and the same bytes for the same numbers."""

import numpy as np
import pytest

from papers.draganov2024.pictures import PlanePairs, StepsOverNorm, pairs_in_plane, steps_over


def steps(x: list[float], found: list[float], least: list[float]) -> StepsOverNorm:
    return StepsOverNorm("an objective", *(np.array(numbers) for numbers in (x, found, least)))


@pytest.mark.slow
def test_steps_over_norm_and_angle() -> None:
    norms = steps([0.5, 1, 10], [20, 90, np.nan], [18, 85, np.nan])
    angles = steps([0.5, 1.5, 3.0], [10, 20, 30], [np.nan] * 3)
    one, two = (steps_over([norms], [angles], 500) for _ in range(2))
    assert one == two
    assert one.svg.startswith(b"<?xml")
    assert one.png.startswith(b"\x89PNG")
    # another number of steps, none that came, and no theorem are other pictures
    never = steps([0.5, 1, 10], [np.nan] * 3, [np.nan] * 3)
    bare = steps([0.5, 1, 10], [20, 90, np.nan], [np.nan] * 3)
    assert len({steps_over([x], [angles], 500).svg for x in (norms, never, bare)}) == 3


def pairs(epoch: int, scale: float = 1.0) -> PlanePairs:
    random = np.random.default_rng(epoch)
    one, two = scale * random.normal(size=(2, 12, 2))
    return PlanePairs(epoch, one, two, random.uniform(-1, 1, 12))


def test_pairs_in_the_plane() -> None:
    runs = {"one": [pairs(0), pairs(4)], "two": [pairs(0, 40.0), pairs(4)]}
    picture = pairs_in_plane(runs)
    assert picture == pairs_in_plane(runs)
    assert picture.png.startswith(b"\x89PNG")
    nothing = PlanePairs(0, np.zeros((3, 2)), np.zeros((3, 2)), np.zeros(3))
    assert pairs_in_plane({"collapsed": [nothing]}).svg != picture.svg
