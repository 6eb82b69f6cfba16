"""What each of two gloo processes does for test_shared_norm.py; started once for all its cases."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from isotrope.encoders.shared_norm import share_statistics
from tests import two_processes


@dataclass(frozen=True)
class Case:
    """One network on one division of a batch of 8 rows, two steps long."""

    kind: str  # "1d" or "2d"
    sizes: tuple[int, int] = (5, 3)
    affine: bool = True
    momentum: float | None = 0.1
    tracked: bool = True
    shared: bool = True


@dataclass
class Outcome:
    outputs: Tensor
    of_inputs: Tensor
    of_parameters: list[Tensor]
    buffers: dict[str, Tensor]


def network(case: Case) -> nn.Module:
    """A small float64 network, the same in every process."""
    choice = {
        "affine": case.affine,
        "momentum": case.momentum,
        "track_running_stats": case.tracked,
    }
    layers: list[nn.Module] = (
        [nn.Linear(3, 4), nn.BatchNorm1d(4, **choice), nn.Tanh(), nn.Linear(4, 2)]
        if case.kind == "1d"
        else [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, **choice), nn.Tanh(), nn.Flatten(1)]
    )
    layers.append(nn.BatchNorm1d(2 if case.kind == "1d" else 24, **choice))
    net = nn.Sequential(*layers).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator).double())
    return net


def inputs(case: Case, step: int) -> Tensor:
    shape = (8, 3) if case.kind == "1d" else (8, 3, 4, 5)
    generator = torch.Generator().manual_seed(2 + step)
    return 1 + torch.randn(shape, generator=generator, dtype=torch.float64)


def outcome(net: nn.Module, batches: list[Tensor], weight: float) -> Outcome:
    """Two steps: the outputs and gradients of the second, and the buffers after it."""
    for x in batches:
        net.zero_grad()
        x = x.requires_grad_()
        y = net(x)
        (weight * (y.sin() + y**2)).sum().backward()
    assert x.grad is not None
    buffers = {name.removeprefix("module."): value for name, value in net.named_buffers()}
    gradients = [p.grad for p in net.parameters() if p.grad is not None]
    return Outcome(y.detach(), x.grad, gradients, buffers)


def one_process(case: Case) -> Outcome:
    """The truth: torch's own batch norms on the whole batch."""
    return outcome(network(case), [inputs(case, step) for step in range(2)], 1.0)


def on_two(cases: list[Case], folder: Path) -> dict[Case, list[Outcome]]:
    """What both processes find, of every case."""
    found = two_processes.on_two(_work, folder, cases)
    return {case: [found[0][case], found[1][case]] for case in cases}


def _work(rank: int, cases: list[Case]) -> dict[Case, Outcome]:
    results = {}
    for case in cases:
        net = network(case)
        net = share_statistics(net) if case.shared else net
        rows = slice(sum(case.sizes[:rank]), sum(case.sizes[: rank + 1]))
        batches = [inputs(case, step)[rows] for step in range(2)]
        # DDP takes the mean over processes of what is the sum over rows
        results[case] = outcome(DistributedDataParallel(net), batches, 2.0)
    return results
