"""A latent space of two dimensions in training: ``isotrope.training.latent``.

Settings of a cell: ``run``, a name of :func:`isotrope.training.latent.simclr_cells` or
``byol_cells``; ``data`` by the names of ``Places``; ``epochs``; ``limit``, most training images;
``shown``, the epochs whose pairs are kept, not only what is measured of them.
"""

from pathlib import Path

from isotrope.core.errors import InputError, nearest
from isotrope.core.result import Result, provenance
from isotrope.diagnostics.latent import LatentSnapshot
from isotrope.training.latent import byol_cells, latent, simclr_cells
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import Job

__all__ = ["check", "run"]

_SETTINGS = {"run", "data", "epochs", "limit", "shown"}


def check(job: Job, sources: DataRegistry) -> list[str]:
    """Resolve the names of a job; return what is not on this machine, a line each.

    Raises:
        InputError: no such run, other settings, or an epoch to show that there is not.
    """
    asked = job.settings
    if set(asked) != _SETTINGS:
        raise InputError(f"a job of a latent space has {', '.join(sorted(_SETTINGS))}")
    runs = {**simclr_cells(), **byol_cells()}
    if asked["run"] not in runs:
        raise InputError(f"no latent run is named {asked['run']!r}{nearest(asked['run'], runs)}")
    late = [epoch for epoch in asked["shown"] if not 0 <= epoch <= asked["epochs"]]
    if late:
        raise InputError(f"epochs 0 to {asked['epochs']} can be shown; found {late[0]}")
    lacking = sources.missing(asked["data"])
    return [lacking] if lacking else []


def run(job: Job, sources: DataRegistry, folder: Path) -> Result:
    """Train one run and look at it after every epoch.

    Raises:
        InputError: data that are missing, a training that diverges.
    """
    asked = job.settings
    runs = {**simclr_cells(), **byol_cells()}
    (looks,) = latent(
        {asked["run"]: runs[asked["run"]]},
        sources.images(asked["data"]),
        epochs=asked["epochs"],
        limit=asked["limit"],
        seed=job.seed,
    ).values()
    rows = [{"epoch": look.epoch, **_short(look.measures())} for look in looks]
    pairs = {str(look.epoch): _pairs(look) for look in looks if look.epoch in asked["shown"]}
    last = {name: value for name, value in rows[-1].items() if name != "epoch"}
    return Result(
        kind="latent",
        name=asked["run"],
        metrics=dict(last),
        details={"looks": rows, "pairs": pairs},
        provenance=provenance(seed=job.seed),
    )


def _short(measures: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.6g}") for name, value in measures.items()}


def _pairs(look: LatentSnapshot) -> dict[str, list[list[float]]]:
    """The n x 2 anchors and positives of an epoch, in four digits."""
    both = {"anchors": look.anchors, "positives": look.positives}
    return {k: [[float(f"{x:.4g}") for x in row] for row in v.tolist()] for k, v in both.items()}
