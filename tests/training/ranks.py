"""What each of two gloo processes does for test_shares.py; started once for all its cases."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from isotrope.core.distributed import all_gather_views
from isotrope.core.errors import WrongCoupling
from isotrope.core.hyper import Paper
from isotrope.core.views import Views
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm import registry
from isotrope.paradigm.loss_shares import shared_loss
from isotrope.paradigm.objective import Objective
from isotrope.training.gradient_cache import cached
from tests import two_processes

D_IN, D_OUT = 6, 5


@dataclass(frozen=True)
class Case:
    """One objective on one division of a batch of 8 records."""

    objective: str
    settings: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, int] = (5, 3)
    negatives: tuple[int, int] = (0, 0)
    grouped: bool = False
    cached: bool = False

    def __str__(self) -> str:
        words = [self.objective, *(f"{k}={v}" for k, v in self.settings.items())]
        words += ["+".join(map(str, self.sizes))]
        words += [f"negatives {self.negatives}"] if any(self.negatives) else []
        return " ".join(words + ["grouped"] * self.grouped + ["cached"] * self.cached)

    def built(self) -> Objective:
        if self.objective == "plug-in":
            return PlugIn(**self.settings)
        return registry.build(self.objective, self.settings)


class PlugIn(Objective, register=False):
    """A user's own: all anchors are steeper where the mean of all log-sum-exps is large."""

    coupling: Any = "batch"
    name, paper = "plug-in", Paper("none", "none", "none")

    def formula(self, pairs: Pairs) -> Tensor:
        lse = pairs.logsumexp(0.05)
        return torch.nn.functional.softplus(lse - pairs.positive / 0.05) * (
            1 + torch.relu(lse.mean() - 5)
        )


def encoder() -> nn.Module:
    """A small float64 encoder, the same in every process."""
    generator = torch.Generator().manual_seed(1)
    layers = nn.Sequential(nn.Linear(D_IN, 7), nn.Tanh(), nn.Linear(7, D_OUT)).double()
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layers


def inputs(case: Case) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Anchors, positives, additional negatives and groups of the batch, before the encoder."""
    generator = torch.Generator().manual_seed(2)
    n, q = sum(case.sizes), sum(case.negatives)
    x = torch.randn(2 * n + q, D_IN, generator=generator, dtype=torch.float64)
    x[n : 2 * n] = 0.3 * x[n : 2 * n] + x[:n]
    groups = torch.arange(n) % (n - 2) if case.grouped else None  # the last two are the first two
    return x[:n], x[n : 2 * n], x[2 * n :] if q else None, groups


def embedded(
    model: nn.Module,
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor | None,
    groups: Tensor | None,
    *,
    in_pieces: bool = False,
) -> Views:
    parts = [anchors, positives] if negatives is None else [anchors, positives, negatives]
    if in_pieces:
        rows = torch.cat(cached(model, [(piece,) for piece in torch.cat(parts).split(3)]))
    else:
        rows = model(torch.cat(parts))
    return Views(*rows.split([len(part) for part in parts]), groups=groups)


class Step(nn.Module):
    """What DDP wraps: from a rank's inputs to the loss that it backpropagates."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.encoder, self.case = encoder(), case

    def forward(self, *batch: Tensor | None) -> Tensor:
        views = embedded(self.encoder, *batch, in_pieces=self.case.cached)
        return shared_loss(self.case.built(), all_gather_views(views))


def of_rank(case: Case, rank: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    anchors, positives, negatives, groups = inputs(case)
    rows = slice(sum(case.sizes[:rank]), sum(case.sizes[: rank + 1]))
    further = slice(sum(case.negatives[:rank]), sum(case.negatives[: rank + 1]))
    if negatives is not None:
        negatives = negatives[further] if case.negatives[rank] else None
    return anchors[rows], positives[rows], negatives, None if groups is None else groups[rows]


def one_process(case: Case) -> tuple[float, list[Tensor]]:
    """The truth: loss and parameter gradients of the concatenated batch."""
    model = encoder()
    loss = case.built().loss(embedded(model, *inputs(case)))
    loss.backward()
    return loss.item(), [p.grad for p in model.parameters()]


def on_two(cases: list[Case], folder: Path) -> dict[str, tuple[list[float], list[Tensor]]]:
    """The losses that both ranks see, and the gradients that DDP averages, of every case."""
    found = two_processes.on_two(_work, folder, cases)
    return {name: ([found[0][name][0], found[1][name][0]], found[0][name][1]) for name in found[0]}


def _work(rank: int, cases: list[Case]) -> dict[str, tuple[float, list[Tensor]]]:
    results = {}
    for case in cases:
        model = DistributedDataParallel(Step(case))
        loss = model(*of_rank(case, rank))
        loss.backward()
        results[str(case)] = loss.item(), [p.grad for p in model.parameters()]
    results["facts"] = 0.0, _facts(rank)
    results["refused"] = 0.0, [_refused(rank)]
    return results


def _refused(rank: int) -> Tensor:
    """Whether a plug-in whose anchors are declared not to be coupled is refused, by size."""
    found = []
    for half in (4, 40, 700):
        generator = torch.Generator().manual_seed(rank)
        views = Views(*torch.randn(2, half, 8, generator=generator).requires_grad_())
        try:
            shared_loss(PlugIn(coupling="none"), all_gather_views(views))
        except WrongCoupling:
            found.append(half)
    return torch.tensor(found)


def _facts(rank: int) -> list[Tensor]:
    """What test_shares.py asks about the gather itself, as seen by one rank."""
    from isotrope.core.distributed import all_reduce_max, all_reduce_sum, rows_of

    half = torch.full((2 - rank, 2), 1.5 + rank, dtype=torch.bfloat16, requires_grad=True)
    whole = all_gather_views(Views(half, half * 2, groups=torch.arange(2 - rank) + 10 * rank))
    (whole.views.anchors * (1.0 + rank)).sum().backward()
    rows = rows_of(7)
    return [
        whole.views.anchors.detach(),
        whole.views.groups,
        half.grad,
        torch.tensor([whole.rows.start, whole.rows.stop, whole.fewest]),
        torch.tensor([all_reduce_max(rank + 3), rows.start, rows.stop]),
        all_reduce_sum(torch.tensor(rank + 1.0)),
    ]
