"""A latent space of two dimensions in training: Draganov et al. 2024, figure 4, on a CPU.

The paper trains SimCLR and BYOL with projections of two dimensions and draws a line between the
two views of each image. Here the methods are the library's own, which its tests
compare with their papers.

SimCLR minimises DCL at temperature .5, the loss in the code of the authors' later paper (eq. 1 has
the positive outside the sum, too, and no temperature). Ours, since the paper says no more: a
network of two convolutions, heads of one hidden layer of 128, batches of 128, learning rate .01
along the recipe's cosine (at the recipe's .06 the first epoch throws embeddings that begin at norms
of .3 to 9 and more, where the effect of the norm holds them), 256 training images with the same two
crops at every look, batch normalisations in training mode, as the objective sees them.

Settings of a job: ``run``, one of :data:`RUNS` (the cut-constants are the paper's); ``data`` by the
names of ``DataRegistry``; ``epochs``; ``limit``, most training images; ``shown``, the epochs whose
pairs are kept, not only what is measured of them.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from isotrope import Views
from isotrope.core import Result, provenance, unit
from isotrope.data import ImageBatches, ImageSet, load_images
from isotrope.encoders import ImageEncoder, cut_initialize
from isotrope.measures import mean_norm, opposite_halves
from isotrope.paradigm import build
from isotrope.training import ImageMethod, build_optimizer, find_method, options_of, set_rates
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob

_WIDTH, _GRID, _HIDDEN, _BATCH, _SHOWN = 16, 4, 128, 128, 256
_RATE = 0.01
_FAR = 7 * math.pi / 8
"""From here on, says appendix C.1, opposite halves could matter."""


@dataclass(frozen=True, eq=False)
class LatentSnapshot:
    """Pairs of one set of images, as the objective sees them, after an epoch.

    Attributes:
        epoch: 0 before training.
        anchors: n x d, not normalised: SimCLR's projections, BYOL's predictions.
        positives: n x d: SimCLR's projections, BYOL's targets, of the other crop.
    """

    epoch: int
    anchors: Tensor
    positives: Tensor

    def measures(self) -> dict[str, float]:
        """Return the numbers of the snapshot.

        norm: mean norm of the anchors. angle: mean angle of the pairs, radians. opposite_halves,
        far_opposite: share of pairs more than pi/2 and more than 7 pi/8 apart. clusters: the length
        of the mean of e^{2 i theta} over the anchors' directions in the first two dimensions: 1
        where all lie on one line through the origin (one cluster, or two at antipodes), near 0
        where they are spread around the circle.
        """
        cosines = (unit(self.anchors) * unit(self.positives)).sum(dim=1)
        directions = torch.atan2(self.anchors[:, 1], self.anchors[:, 0])
        doubled = torch.polar(torch.ones_like(directions), 2 * directions).mean().abs()
        return {
            "norm": float(mean_norm(self.anchors)),
            "angle": float(cosines.clamp(-1, 1).acos().mean()),
            "opposite_halves": float(opposite_halves(self.anchors, self.positives)),
            "far_opposite": float(opposite_halves(self.anchors, self.positives, _FAR)),
            "clusters": float(doubled),
        }


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        method: the name of the method.
        objective: its name.
        settings: the objective's hyperparameters.
        weight_decay: None is the recipe's.
        cut: the cut-constant of all weights, 1 for none.
        batch_norm: whether the heads have batch normalisations; None is the method's own.
    """

    method: str
    objective: str
    settings: Mapping[str, str] = field(default_factory=dict)
    weight_decay: float | None = None
    cut: float = 1.0
    batch_norm: bool | None = None


_SIMCLR = Cell("simclr", "dcl", {"temperature": "0.5"})
_BYOL = Cell("byol", "negativecosine")
RUNS = {
    "SimCLR": _SIMCLR,
    "SimCLR, decay .05": replace(_SIMCLR, weight_decay=0.05),
    "SimCLR, cut 3": replace(_SIMCLR, cut=3.0),
    "BYOL": _BYOL,
    "BYOL, no batch norm": replace(_BYOL, batch_norm=False),
    "BYOL, cut 9": replace(_BYOL, cut=9.0),
}


def check(job: PaperJob, sources: DataRegistry) -> list[str]:
    """Return what is not on this machine, a line each."""
    lacking = sources.missing(job.settings["data"])
    return [lacking] if lacking else []


def run(job: PaperJob, sources: DataRegistry, folder: Path) -> Result:
    """Train one run and look at it before training and after every epoch."""
    settings = job.settings
    snapshots = trained(
        RUNS[settings["run"]],
        sources.images(settings["data"]),
        epochs=settings["epochs"],
        limit=settings["limit"],
        seed=job.seed,
    )
    rows = [
        {"epoch": of.epoch, **{k: float(f"{v:.6g}") for k, v in of.measures().items()}}
        for of in snapshots
    ]
    pairs = {str(of.epoch): _pairs(of) for of in snapshots if of.epoch in settings["shown"]}
    return Result(
        kind="latent",
        name=settings["run"],
        metrics={name: value for name, value in rows[-1].items() if name != "epoch"},
        details={"looks": rows, "pairs": pairs},
        provenance=provenance(seed=job.seed),
    )


def _pairs(snapshot: LatentSnapshot) -> dict[str, list[list[float]]]:
    """The n x 2 anchors and positives of an epoch, in four digits."""
    both = {"anchors": snapshot.anchors, "positives": snapshot.positives}
    return {k: [[float(f"{x:.4g}") for x in row] for row in v.tolist()] for k, v in both.items()}


def trained(
    cell: Cell, data: Path | str = "digits", *, epochs: int, limit: int, seed: int = 0
) -> list[LatentSnapshot]:
    """Train a run and look at its pairs before training and after each epoch."""
    images = load_images(data, limit=limit)
    return _train(_method(cell, images, epochs, seed), images, epochs, seed)


def _method(cell: Cell, images: ImageSet, epochs: int, seed: int) -> ImageMethod:
    """Everything is checked here, before the first run trains."""
    method = find_method(cell.method)
    heads: dict[str, object] = {"dimension": 2, "hidden": _HIDDEN}
    if cell.batch_norm is not None:
        heads["batch_norm"] = cell.batch_norm
    options = options_of(cell.method, heads)
    batches = ImageBatches(images.train, _BATCH, seed)
    plan = method.recipe.plan(
        steps=epochs * batches.steps_per_epoch,
        steps_per_epoch=batches.steps_per_epoch,
        batch_size=batches.size,
    )
    plan = replace(plan, learning_rate=_RATE, last_learning_rate=0.0)
    if cell.weight_decay is not None:
        plan = replace(plan, weight_decay=cell.weight_decay)
    encoder = _encoder(images.side, seed)
    cut_initialize(encoder, cell.cut)
    module = method(
        encoder=encoder,
        objective=build(cell.objective, cell.settings),
        plan=plan,
        options=options,
        seed=seed,
    )
    module.cut_heads(cell.cut)
    return module.train()


def _encoder(side: int, seed: int) -> ImageEncoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(3, _WIDTH, 3, padding=1, bias=False),
            nn.BatchNorm2d(_WIDTH),
            nn.ReLU(),
            nn.Conv2d(_WIDTH, 2 * _WIDTH, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * _WIDTH),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(_GRID),
            nn.Flatten(),
        )
    return ImageEncoder.wrap(net, dimension=2 * _WIDTH * _GRID**2, image_size=side)


def _train(module: ImageMethod, images: ImageSet, epochs: int, seed: int) -> list[LatentSnapshot]:
    batches = ImageBatches(images.train, _BATCH, seed)
    crops = _fixed_crops(module, images, seed)
    optimizer = build_optimizer(module, module.plan, fused=False)
    looks = [_look(module, crops, 0)]
    for step in range(epochs * batches.steps_per_epoch):
        loss = module(batches.at(step))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        set_rates(optimizer, module.plan, step)
        optimizer.step()
        module.after_step()
        if (step + 1) % batches.steps_per_epoch == 0:
            looks.append(_look(module, crops, (step + 1) // batches.steps_per_epoch))
    return looks


def _fixed_crops(module: ImageMethod, images: ImageSet, seed: int) -> list[Tensor]:
    return module.crops(ImageBatches(images.train, _SHOWN, seed).at(0))


@torch.no_grad()
def _look(module: ImageMethod, crops: Sequence[Tensor], epoch: int) -> LatentSnapshot:
    """Embed a copy's crops: a forward pass moves the statistics of batch normalisations."""
    seen: Views = copy.deepcopy(module).views(list(crops))[0]
    return LatentSnapshot(epoch, seen.anchors.clone(), seen.positives.clone())
