"""Figure 1, an illustration: gradients are tangents, so every step makes an embedding longer."""

import math
from itertools import pairwise

import torch

from isotrope.reports import Picture
from papers.draganov2024.cosine import attraction, squared_norm_after
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling
from papers.plots.charts import Chart, Series, charts

STEPS, RATE = 3, 1.0
START, TARGET = (1.0, 0.0), (-0.5, math.sqrt(0.75))
_ACROSS = 1.85  # half the width of the plane, for the circle to be round


def path() -> tuple[torch.Tensor, list[float], list[float]]:
    """Return the embedding before every step, and its norms with those of corollary 3.2."""
    z, other = (torch.tensor([v], dtype=torch.float64) for v in (START, TARGET))
    places, norms, expected = [z[0]], [float(z.norm())], [float(z.norm())]
    for _ in range(STEPS):
        expected.append(float(squared_norm_after(z, other, RATE).sqrt()))
        z = z - RATE * attraction(z, other)
        places.append(z[0])
        norms.append(float(z.norm()))
    return torch.stack(places), norms, expected


def render(scale: Scale, results: Results) -> Rendered:
    """Return three steps of descent on the negative cosine in the plane."""
    _, norms, expected = path()
    rows = [
        [str(i), f"{a:.6f}", f"{b:.6f}"]
        for i, (a, b) in enumerate(zip(norms, expected, strict=True))
    ]
    exact = max(abs(a - b) for a, b in zip(norms, expected, strict=True)) < 1e-12
    longer = all(b > a for a, b in pairwise(norms))
    return Rendered(
        tables=[Sheet(["step", "norm", "corollary 3.2"], rows)],
        verdicts=[
            Ruling("every step makes the embedding longer, as corollary 3.2 says", exact and longer)
        ],
        pictures={"figure1": _drawn},
    )


def _drawn() -> Picture:
    places, norms, _ = path()
    turn = torch.linspace(0, 2 * torch.pi, 73)
    x, y = places.T.tolist()
    across = torch.linspace(-_ACROSS, _ACROSS, 73)
    plane = [
        Series(" ", across.tolist(), [0.0] * len(across)),
        Series("norm 1", turn.cos().tolist(), turn.sin().tolist()),
        Series("z after steps 0 to 3", x, y),
        Series("its positive", [0.0, TARGET[0]], [0.0, TARGET[1]]),
    ]
    steps = [Series("norm", list(range(STEPS + 1)), norms)]
    return charts(
        [
            Chart("steps are tangents", plane, "x", "y"),
            Chart("so norms grow", steps, "step", "norm"),
        ]
    )
