"""Table 2: how many positive pairs are on opposite halves, in the first epoch and later."""

from typing import Any

from papers.draganov2024.logged import at, first, listed, peak, percent, verdict
from papers.draganov2024.trainings import CUT, ROW, default, paper
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.small_images import small_images
from papers.machinery.verdicts import RULE, Answer, Ruling, Spread, above, ahead, each, minus
from papers.paper_numbers import printed

DATA: dict[Scale, tuple[str, ...]] = {
    "smoke": ("digits",),
    "cpu": ("cifar10",),
    "paper": ("imagenet100", "cifar100"),
}
PRINTED = {"imagenet100": "ImageNet-100", "cifar100": "CIFAR-100"}
LATE: dict[Scale, int] = {"smoke": 2, "cpu": 8, "paper": 16}
NORMALISED = ("SimSiam", "BYOL")
"""Methods with batch normalisation in their heads."""
"""A share that the paper rounds to 1 percent."""


def trained(scale: Scale, name: str, data: str) -> list[PaperJob]:
    """Return the default training of a method."""
    return default(scale, name, data=data)


def heads(scale: Scale, name: str, norm: bool) -> list[PaperJob]:
    """Return a training so short that its learning rate falls at once, with or without them."""
    settings: dict[str, Any] = {} if norm else {"method.batch_norm": "false"}
    if name == "BYOL" and not norm:
        settings["method.last_norm"] = "false"
    if scale == "paper":
        return paper(name, data="cifar100", epochs=16, warmup_epochs=0, **settings)
    settings |= {"epochs": 1, "knn_every": 1, "knn_images": 500, "linear": False}
    return small_images(scale, name, **settings)


def jobs(scale: Scale) -> list[PaperJob]:
    """Every method on all data, and those with batch norm once more without."""
    full = [trained(scale, name, data) for data in DATA[scale] for name in CUT]
    brief = [heads(scale, name, norm) for name in NORMALISED for norm in (True, False)]
    return [job for trainings in (*full, *brief) for job in trainings]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the rates at pi/2, as printed, and at 7 pi/8, which the text says never occur."""
    opposite, seen = _opposite(scale, results)
    heads_, normed = _heads(scale, results)
    return Rendered(tables=[opposite, heads_], verdicts=[*seen, *normed], notes=_notes(scale))


def _opposite(scale: Scale, results: Results) -> tuple[Sheet, list[Ruling]]:
    late = LATE[scale]
    runs = {(data, name): trained(scale, name, data) for data in DATA[scale] for name in CUT}
    early = {run: first(results, trainings, "opposite_halves") for run, trainings in runs.items()}
    left = {run: at(results, trainings, "opposite_halves", late) for run, trainings in runs.items()}
    most = {run: peak(results, trainings, "far_opposite") for run, trainings in runs.items()}
    rows = [
        [
            name,
            data,
            *(_printed(name, data, place) for place in (0, 1)),
            *(percent(early[data, name]), percent(left[data, name]), percent(most[data, name], 3)),
        ]
        for data, name in runs
    ]
    header = ["", "data", "paper: epoch 1", "paper: epoch 16", "ours: epoch 1"]
    header += [f"ours: epoch {late}", "above 7 pi/8, at most"]
    claims = [
        *each(
            "{}: more pairs on opposite halves in the first epoch than SimCLR",
            {
                f"{n}, {data}": (
                    ahead(early[data, n], early[data, "SimCLR"]),
                    listed({m: percent(early[data, m]) for m in (n, "SimCLR")}),
                )
                for data, n in runs
                if n in NORMALISED
            },
        ),
        *each(
            f"{{}}: of these at most a third are left after epoch {late}",
            {
                f"{n}, {data}": (
                    _fallen(early[data, n], left[data, n]),
                    listed({"epoch 1": percent(early[data, n]), f"{late}": percent(left[data, n])}),
                )
                for data, n in runs
                if n in NORMALISED
            },
        ),
        verdict(
            "no pair is ever more than 7 pi/8 apart",
            [None if level is None else level.mean == 0 for level in most.values()],
            listed({f"{n}:": percent(level, 3) for (_, n), level in most.items()}),
        ),
    ]
    return Sheet(header, rows, "percent of positive pairs at an angle above pi/2"), claims


def _fallen(early: Spread | None, late: Spread | None) -> Answer:
    """Whether a rate has fallen to a third, seed by seed."""
    if early is None or late is None:
        return None
    return above(minus({seed: rate / 3 for seed, rate in early.by_seed.items()}, late.by_seed))


def _heads(scale: Scale, results: Results) -> tuple[Sheet, list[Ruling]]:
    rates = {
        (name, norm): first(results, heads(scale, name, norm), "opposite_halves")
        for name in NORMALISED
        for norm in (True, False)
    }
    rows = [[name, percent(rates[name, True]), percent(rates[name, False])] for name in NORMALISED]
    title = f"the same in epoch 1 of a training of {16 if scale == 'paper' else 1}"
    return Sheet(["", "batch norm in the heads", "none"], rows, title), each(
        "{}: without batch norm in the heads fewer are there",
        {
            name: (
                ahead(rates[name, True], rates[name, False]),
                listed(
                    {"with": percent(rates[name, True]), "without": percent(rates[name, False])}
                ),
            )
            for name in NORMALISED
        },
    )


def _printed(name: str, data: str, place: int) -> str:
    """The paper's rate on these data, or else on both of its own."""
    rates = printed("cosine-pitfalls", "table2").rows
    datasets = (PRINTED[data],) if data in PRINTED else PRINTED.values()
    return ", ".join(
        f"{rates[f'{ROW[name]}/{dataset}'][place]} ({dataset})" for dataset in datasets
    )


def _notes(scale: Scale) -> list[str]:
    slip = printed("cosine-pitfalls", "table2").notes[1]
    seen = (
        "Angles are between what the objective sees: projections of SimCLR; a prediction and the "
        "other crop's projection for SimSiam and BYOL. Ours are means over an epoch of training "
        "batches; SimCLR has no batch norm in its head."
    )
    if scale == "paper":
        return [seen, RULE, slip]
    steps = "Our epoch 8 ends after 624 steps of 64 images, the paper's 16 after over 6,000 of 128."
    return [seen, *([steps] if scale == "cpu" else []), RULE, slip]


ARTIFACT = Artifact(
    title="table 2: positive pairs on opposite halves of the latent space", jobs=jobs, render=render
)
