"""A latent space of two dimensions in training: ``papers.draganov2024.latent``.

Settings of a cell: ``run``, a name of :func:`papers.draganov2024.latent.simclr_cells` or
``byol_cells``; ``data`` by the names of ``DataRegistry``; ``epochs``; ``limit``, most training
images; ``shown``, the epochs whose pairs are kept, not only what is measured of them.
"""

from pathlib import Path

from isotrope.core import InputError, Result, nearest, provenance
from papers.draganov2024.latent import LatentSnapshot, byol_cells, latent, simclr_cells
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob

_SETTINGS = {"run", "data", "epochs", "limit", "shown"}


def check(job: PaperJob, sources: DataRegistry) -> list[str]:
    """Resolve the names of a job; return what is not on this machine, a line each."""
    settings = job.settings
    if set(settings) != _SETTINGS:
        raise InputError(f"a job of a latent space has {', '.join(sorted(_SETTINGS))}")
    runs = {**simclr_cells(), **byol_cells()}
    if settings["run"] not in runs:
        raise InputError(
            f"no latent run is named {settings['run']!r}{nearest(settings['run'], runs)}"
        )
    late = [epoch for epoch in settings["shown"] if not 0 <= epoch <= settings["epochs"]]
    if late:
        raise InputError(f"epochs 0 to {settings['epochs']} can be shown; found {late[0]}")
    lacking = sources.missing(settings["data"])
    return [lacking] if lacking else []


def run(job: PaperJob, sources: DataRegistry, folder: Path) -> Result:
    """Train one run and look at it after every epoch."""
    settings = job.settings
    runs = {**simclr_cells(), **byol_cells()}
    (snapshots,) = latent(
        {settings["run"]: runs[settings["run"]]},
        sources.images(settings["data"]),
        epochs=settings["epochs"],
        limit=settings["limit"],
        seed=job.seed,
    ).values()
    rows = [{"epoch": snapshot.epoch, **_short(snapshot.measures())} for snapshot in snapshots]
    pairs = {
        str(snapshot.epoch): _pairs(snapshot)
        for snapshot in snapshots
        if snapshot.epoch in settings["shown"]
    }
    last = {name: value for name, value in rows[-1].items() if name != "epoch"}
    return Result(
        kind="latent",
        name=settings["run"],
        metrics=dict(last),
        details={"looks": rows, "pairs": pairs},
        provenance=provenance(seed=job.seed),
    )


def _short(measures: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.6g}") for name, value in measures.items()}


def _pairs(snapshot: LatentSnapshot) -> dict[str, list[list[float]]]:
    """The n x 2 anchors and positives of an epoch, in four digits."""
    both = {"anchors": snapshot.anchors, "positives": snapshot.positives}
    return {k: [[float(f"{x:.4g}") for x in row] for row in v.tolist()] for k, v in both.items()}
