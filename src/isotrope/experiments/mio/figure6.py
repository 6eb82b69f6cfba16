"""Figure 6: how the spectra of MIOv3 and SimCLR change while they are trained."""

from isotrope.experiments.mio.frameworks import EPOCHS, evolving
from isotrope.experiments.mio.spectra import (
    epoch,
    looks,
    no_minimum,
    notes,
    paneled,
    second_bulk,
    table,
)
from isotrope.experiments.reproduce.artifact import Artifact, Found, Scale, Shown, Verdict
from isotrope.experiments.reproduce.cell import Cell

FRAMEWORKS = ("MIOv3", "SimCLR")


def cells(scale: Scale) -> list[Cell]:
    """The two, each at several epochs."""
    return [evolving(scale, name) for name in FRAMEWORKS]


def show(scale: Scale, found: Found) -> Shown:
    """Draw each over the epochs; the third verdict of section 3.4."""
    some = {name: looks(found, name, evolving(scale, name)) for name in FRAMEWORKS}
    every = [look for own in some.values() for look in own]
    claim = "SimCLR's second bulk moves towards higher eigenvalues"
    middles = {look.epoch: second_bulk(look) for look in some["SimCLR"]}
    places = list(middles.values())
    said = ", ".join(
        f"epoch {after:g}: {'none' if middle is None else f'{middle:.4g}'}"
        for after, middle in middles.items()
    )
    holds = None
    if places:
        first, last = places[0], places[-1]
        holds = first is not None and last is not None and last > first
    return Shown(
        tables=[table(every)],
        verdicts=[
            no_minimum(
                every,
                "neither is at a minimum at any of the epochs",
                len(FRAMEWORKS) * len(EPOCHS[scale]),
            ),
            Verdict(claim, holds, said),
        ],
        pictures={"figure6": paneled(some, epoch)},
        notes=[
            *notes(scale, every),
            "the paper sees its second bulk in a drawing; here it is the Ritz values above the "
            "threshold, its place the middle one of them, and it moves if that of the last epoch "
            "is larger than that of the first",
        ],
    )


ARTIFACT = Artifact(
    title="figure 6: the spectra of MIOv3 and SimCLR over the epochs", cells=cells, show=show
)
