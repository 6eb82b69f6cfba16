"""Figure 1, an illustration: views of one sample are dependent, views of two are independent."""

import functools
import math

import numpy as np

from isotrope.reports import Picture
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling
from papers.plots.charts import Chart, Series, charts

_NOISE = 0.5
COUNT: dict[Scale, int] = {"smoke": 200, "cpu": 2000, "paper": 2000}
_DRAWN = 200
_KINDS = ("positive pairs", "negative pairs")


def render(scale: Scale, results: Results) -> Rendered:
    """Draw samples on a line, two noisy views of each; nothing is trained."""
    first, second = _views(COUNT[scale])
    pairs = {_KINDS[0]: (first, second), _KINDS[1]: (first, np.roll(second, 1))}
    exact = {_KINDS[0]: -math.log1p(-((1 / (1 + _NOISE**2)) ** 2)) / 2, _KINDS[1]: 0.0}
    rows, found_information = [], {}
    for kind, (x, y) in pairs.items():
        correlation = float(np.corrcoef(x, y)[0, 1])
        found_information[kind] = -math.log1p(-(correlation**2)) / 2
        rows.append(
            [kind, f"{correlation:.3f}", f"{found_information[kind]:.3f}", f"{exact[kind]:.3f}"]
        )
    error = 3 / COUNT[scale]  # 2 n I of independent pairs is chi-squared: mean 1
    return Rendered(
        tables=[Sheet(("", "correlation", "information, drawn", "information, exact"), rows)],
        verdicts=[
            Ruling(
                "views of one sample share information, views of two do not",
                found_information[_KINDS[0]] > 0.1 and found_information[_KINDS[1]] < error,
                ", ".join(f"{kind} {value:.3f}" for kind, value in found_information.items()),
            )
        ],
        pictures={"figure1": functools.partial(_scatter, pairs)},
    )


def _views(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    sample = rng.standard_normal(count)
    first, second = (sample + _NOISE * rng.standard_normal(count) for _ in range(2))
    return first, second


def _scatter(pairs: dict[str, tuple[np.ndarray, np.ndarray]]) -> Picture:
    lines = {
        kind: Series("", x[:_DRAWN].tolist(), y[:_DRAWN].tolist()) for kind, (x, y) in pairs.items()
    }
    return charts(
        [Chart(kind, [line], "one view", "the other", "points") for kind, line in lines.items()]
    )
