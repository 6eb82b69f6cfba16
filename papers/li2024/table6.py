"""Table 6: the tuned values of the modified losses for BERT-base, and the grid behind them."""

import functools

from papers.li2024.grid import jobs_of
from papers.li2024.grid_tables import grid_tables
from papers.li2024.losses import BERT
from papers.machinery.artifact import Artifact, Rendered, Results, Scale


def render(scale: Scale, results: Results) -> Rendered:
    """Return values, printed and ours, and both stages of the grid."""
    return grid_tables(scale, results, BERT, "table6")


ARTIFACT = Artifact(
    title="table 6: tuned values for BERT-base, and the grid behind them",
    jobs=functools.partial(jobs_of, base=BERT),
    render=render,
)
