"""Pictures of embeddings in training: what is drawn, and the same bytes for the same numbers."""

import numpy as np

from papers.draganov2024.figure4 import PlanePairs, pairs_in_plane


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
