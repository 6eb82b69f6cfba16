"""Supplement, table 2: attracting and repulsing terms, from our ``parts`` and as printed."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from isotrope import Views
from isotrope.paradigm import build
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling

TAU = 0.5
_EXACT = 1e-12
_ROWS = 6

_Term = Callable[[Tensor, Tensor], Tensor]
"""Of x, the positives' cosines over tau (2N), and y, those of the negatives (2N x ...)."""


@dataclass(frozen=True)
class PrintedTerms:
    """A row of the table.

    Attributes:
        objective: ours.
        attracting: as printed, and in words.
        repulsing: likewise, or None.
        factor: what ours is multiplied by to be the printed loss.
    """

    objective: str
    attracting: tuple[str, _Term]
    repulsing: tuple[str, _Term] | None
    factor: float = 1.0


_LINEAR: tuple[str, _Term] = ("-C/tau", lambda x, y: -x.mean())
_BINARY: tuple[str, _Term] = ("-log(1 - sigmoid(C/tau))", lambda x, y: softplus(y).mean())
_SOFTMAX: tuple[str, _Term] = (
    "log sum e^(-C/tau)",
    lambda x, y: torch.cat([-x[:, None], -y], dim=1).logsumexp(dim=1).mean(),
)
PRINTED = {
    "SimCLR, MoCo v2": PrintedTerms("infonce", _LINEAR, _SOFTMAX),
    "BYOL": PrintedTerms(
        "negativecosine", ("-2 C", lambda x, y: -2 * TAU * x.mean()), None, factor=2.0
    ),
    "MIOv1": PrintedTerms(
        "miov1", ("-log sigmoid(C/tau)", lambda x, y: softplus(-x).mean()), _BINARY
    ),
    "MIOv2": PrintedTerms("miov2", _LINEAR, _BINARY),
    "MIOv3": PrintedTerms("miov3", _LINEAR, ("-e^(-C/tau)", lambda x, y: -(-y).exp().mean())),
}
OURS = {
    "infonce": "log sum e^(C/tau)",
    "negativecosine": "none",
    "miov1": "-log(1 - sigmoid(C/tau))",
    "miov2": "-log(1 - sigmoid(C/tau))",
    "miov3": "e^(C/tau)",
}


def render(scale: Scale, results: Results) -> Rendered:
    """Compute both on one random batch; nothing is trained."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(2, _ROWS, 4, generator=generator, dtype=torch.float64)
    views = Views(drawn[0], drawn[1])
    rows, repulsing = [], []
    pulls, sums = [], []
    for name, row in PRINTED.items():
        x, y = _cosines(views, row.objective)
        settings = {} if row.repulsing is None else {"temperature": TAU}
        objective = build(row.objective, settings)
        attraction, repulsion = (float(part.loss(views)) for part in objective.parts)
        loss = float(objective.loss(views))
        pulled = float(row.attracting[1](x, y))
        pulls.append(abs(row.factor * attraction - pulled) < _EXACT)
        sums.append(abs(attraction + repulsion - loss) < _EXACT)
        pushed = 0.0 if row.repulsing is None else float(row.repulsing[1](x, y))
        same = abs(row.factor * repulsion - pushed) < _EXACT
        printed = "none" if row.repulsing is None else row.repulsing[0]
        rows.append(
            [
                name,
                *(row.attracting[0], f"{pulled:.4f}", f"{row.factor * attraction:.4f}"),
                *(printed, f"{pushed:.4f}", OURS[row.objective], f"{row.factor * repulsion:.4f}"),
            ]
        )
        repulsing.append(
            Ruling(
                f"the repulsing term of {name} is as printed",
                same,
                "" if same else f"printed {printed}, it is {OURS[row.objective]}",
            )
        )
    header = ("framework", "attracting, printed", "value", "ours")
    return Rendered(
        tables=[Sheet((*header, "repulsing, printed", "value", "right", "ours"), rows)],
        verdicts=[
            Ruling("attracting and repulsing term add up to each loss", all(sums)),
            Ruling("all attracting terms are as printed", all(pulls)),
            *repulsing,
        ],
    )


def _cosines(views: Views, objective: str) -> tuple[Tensor, Tensor]:
    """Cosines over tau: the positives, and the negatives of every anchor as rows."""
    a, b = (side / side.norm(dim=1, keepdim=True) for side in (views.anchors, views.positives))
    n = len(a)
    if objective == "infonce":  # one direction, negatives of the other view
        both = a @ b.T / TAU
        other = ~torch.eye(n, dtype=torch.bool)
        return both.diagonal(), both[other].view(n, n - 1)
    rows = torch.cat([a, b])
    both = rows @ rows.T / TAU
    partner = torch.eye(2 * n, dtype=torch.bool).roll(n, dims=0)
    other = ~(partner | torch.eye(2 * n, dtype=torch.bool))
    return both[partner], both[other].view(2 * n, 2 * n - 2)
