"""The frameworks of the paper's tables, by the names that it prints, and their jobs.

The trainings are those of ``small_images``, which ``papers.draganov2024`` shares; MoCo v2 has its
own recipe. Spectra are of the same trainings, at ``paper`` scale of one, as the paper's; at ``cpu``
scale the four frameworks whose evolution the paper shows have three spectra on the way, of which
the last is what the other figures show.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from papers.machinery.artifact import Scale
from papers.machinery.job import PaperJob
from papers.machinery.recipes import SEEDS, image_jobs, small_images

PRINTED = {
    "SimCLR": "simclr",
    "MoCo v2": "mocov2",
    "DCL": "dcl",
    "DCLW": "dclw",
    "Barlow Twins": "barlowtwins",
    "BYOL": "byol",
    "MIOv1": "miov1",
    "MIOv2": "miov2",
    "MIOv3": "miov3",
}
"""Names of rows and columns in ``paper_numbers.toml``."""
NAMES = tuple(PRINTED)
_SMOKE = ("SimCLR", "BYOL", "MIOv1", "MIOv3")
EVOLVING = ("MIOv3", "SimCLR", "DCL", "BYOL")
"""Those whose spectra the paper follows over 500 epochs, and that table 3 has."""

EPOCHS: dict[Scale, tuple[int, ...]] = {
    "smoke": (1, 2),
    "cpu": (2, 4, 8),
    "paper": (100, 200, 300, 400, 500),
}
SPECTRA: dict[Scale, tuple[int, ...]] = {"smoke": (0,), "cpu": SEEDS["cpu"], "paper": (0,)}
"""Seeds of the trainings that spectra are taken of."""
OTHER: dict[Scale, tuple[str, ...]] = {
    "smoke": ("digits",),
    "cpu": ("digits",),
    "paper": ("cifar100", "tiny-imagenet"),
}
"""Data of figure 5."""
ENCODERS = ("resnet18", "resnet9")
"""Of table 3, the larger first."""

TABLE3: dict[Scale, dict[str, dict[str, Any]]] = {
    "smoke": {"CIFAR-10": {}},
    "cpu": {"CIFAR-10": {}},
    "paper": {"CIFAR-10": {"epochs": EPOCHS["paper"][-1]}, "CIFAR-100": {"data": "cifar100"}},
}
"""Image sets of table 3, and what differs from the trainings of table 2."""
_READ: dict[Scale, tuple[str, ...]] = {
    "smoke": ("digits",),
    "cpu": ("cifar10",),
    "paper": ("cifar10", "cifar100", "stl10", "tiny-imagenet"),
}
"""Image sets that table 1 reads."""
_DATA_SETTINGS: dict[Scale, dict[str, dict[str, Any]]] = {
    # digits are 8 x 8: as many steps as on CIFAR-10 take 28 epochs
    "smoke": {},
    "cpu": {"digits": {"limit": None, "epochs": 28}},
    "paper": {"stl10": {"learning_rate": 0.03}, "tiny-imagenet": {"learning_rate": 0.03}},
}
"""Settings that belong to data (Manna et al. 2023, section 3.2)."""
_SPECTRUM_SETTINGS: dict[Scale, dict[str, Any]] = {
    "smoke": {"spectrum.iterations": 10},
    "cpu": {"spectrum.iterations": 100},
    "paper": {"spectrum.iterations": 100},
}
# what the paper leaves open: another batch, the other statistics, twice the batch
_VARIANTS: dict[Scale, list[dict[str, Any]]] = {
    "smoke": [{"seeds": [1]}, {"batch_norm": "running"}],
    "cpu": [{"seeds": [1, 2]}, {"batch_norm": "running"}, {"batch_size": 128}],
    "paper": [{"seeds": [1, 2]}, {"batch_norm": "running"}, {"batch_size": 256}],
}


def run_at(scale: Scale, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the names that are run at a scale: of smoke a few."""
    return tuple(n for n in names if n in _SMOKE) if scale == "smoke" else names


def trained(
    scale: Scale,
    name: str,
    *,
    data: str | None = None,
    seeds: tuple[int, ...] | None = None,
    **other: Any,
) -> list[PaperJob]:
    """Return the training of a framework, one job for each seed."""
    if name == "MoCo v2":
        jobs = image_jobs(scale, "mocov2", seeds=seeds)
    else:
        jobs = small_images(scale, name, seeds=seeds)
    settings: Mapping[str, Any] = (
        {} if data is None else {"data": data, **_DATA_SETTINGS[scale].get(data, {})}
    )
    return [_with(job, {**settings, **other}) for job in jobs]


def at_end(scale: Scale, name: str, *, data: str | None = None, **other: Any) -> list[PaperJob]:
    """Return the spectra of a framework after its last epoch, one job for each seed.

    Those of trainings whose evolution is measured anyway are its last ones.
    """
    jobs = trained(scale, name, data=data, seeds=SPECTRA[scale], **other)
    if name in EVOLVING and jobs == _longest(scale, name):
        return evolving(scale, name)
    return [_spectrum(scale, name, job) for job in jobs]


def evolving(scale: Scale, name: str) -> list[PaperJob]:
    """Return the spectra of a framework on the way, one job for each seed."""
    jobs = [_spectrum(scale, name, job) for job in _longest(scale, name)]
    return [_with(job, {"spectrum.epochs": list(EPOCHS[scale])}) for job in jobs]


def _longest(scale: Scale, name: str) -> list[PaperJob]:
    """The trainings that are followed; the paper's own have 500 epochs where others have 200."""
    more: dict[str, Any] = {"epochs": EPOCHS[scale][-1]} if scale == "paper" else {}
    return trained(scale, name, seeds=SPECTRA[scale], **more)


def _spectrum(scale: Scale, name: str, job: PaperJob) -> PaperJob:
    """The work that trains like a job of images; neighbours only at both ends."""
    settings = {**_SPECTRUM_SETTINGS[scale], "knn_every": 0, "linear": False}
    if name == "MIOv3" and [job] == trained(scale, name, seeds=(0,)):
        settings["spectrum.variants"] = _VARIANTS[scale]
    return _with(replace(job, measurement="spectrum"), settings)


def _with(job: PaperJob, changes: Mapping[str, Any]) -> PaperJob:
    """The job with other settings; None takes one away."""
    settings = {**job.settings, **changes}
    return replace(job, settings={k: v for k, v in settings.items() if v is not None})


def named(scale: Scale, name: str) -> list[PaperJob]:
    """Return a training of artifacts.toml: ``MIOv3``, ``MIOv3 on stl10``; of smoke a few.

    ``set cifar10`` is that image set, where it is there at this scale; ``spectra/CIFAR-10/resnet9/
    DCL`` are the spectra of table 3, and ``accuracy/...`` its trainings.
    """
    if "/" in name:
        return _reduced(scale, *name.split("/"))
    if name.startswith("set "):
        data = name.removeprefix("set ")
        return [PaperJob("image_set", {"data": data})] if data in _READ[scale] else []
    what, _, data = name.partition(" on ")
    return trained(scale, what, data=data or None) if run_at(scale, (what,)) else []


def _reduced(scale: Scale, kind: str, title: str, encoder: str, name: str) -> list[PaperJob]:
    """The jobs of table 3; its trainings are those of the spectra, unless table 2 has them."""
    if scale == "smoke" and name != EVOLVING[0]:
        return []
    settings = {"encoder": encoder, **TABLE3[scale][title]}
    spectra, jobs = at_end(scale, name, **settings), trained(scale, name, **settings)
    if kind == "spectra":
        return spectra
    by_seed = {job.seed: job for job in spectra}
    return jobs if jobs == trained(scale, name) else [by_seed.get(job.seed, job) for job in jobs]
