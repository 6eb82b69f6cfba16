"""Supplement, figure 3: how the spectra of four frameworks change while they are trained."""

from collections.abc import Callable

from isotrope.experiments.mio.frameworks import EPOCHS, EVOLVING, among, evolving
from isotrope.experiments.mio.spectra import (
    Look,
    epoch,
    looks,
    no_minimum,
    notes,
    paneled,
    table,
)
from isotrope.experiments.reproduce.artifact import Artifact, Found, Scale, Shown, Verdict
from isotrope.experiments.reproduce.cell import Cell


def cells(scale: Scale) -> list[Cell]:
    """The four, each at several epochs."""
    return [evolving(scale, name) for name in among(scale, EVOLVING)]


def show(scale: Scale, found: Found) -> Shown:
    """Draw each over the epochs; the fourth verdict of section 3.4."""
    some = {name: looks(found, name, evolving(scale, name)) for name in EVOLVING}
    every = [look for own in some.values() for look in own]
    return Shown(
        tables=[table(every)],
        verdicts=[
            no_minimum(
                every,
                "none of the four is at a minimum at any of the epochs",
                len(among(scale, EVOLVING)) * len(EPOCHS[scale]),
            ),
            *(
                _grown(
                    f"from the first to the last epoch the mass of {name}'s spectrum moves to "
                    "positive eigenvalues",
                    own,
                    positive,
                )
                for name, own in some.items()
            ),
            *(
                _grown(
                    f"from the first to the last epoch {name}'s positive eigenvalues grow",
                    own,
                    lambda look: look.spectrum.largest[0],
                )
                for name, own in some.items()
            ),
        ],
        pictures={"supplement-figure3": paneled(some, epoch, columns=2)},
        notes=[
            *notes(scale, every),
            "mass on the positive side: of the sum of all eigenvalues' sizes, estimated by the "
            "weights of the Ritz values, the share of the positive ones",
        ],
    )


def positive(look: Look) -> float:
    """Return the share of positive eigenvalues in the sum of all sizes: 1 at a minimum."""
    shares = []
    for ritz in look.spectrum.probes:
        sizes = ritz.weights * abs(ritz.values)
        shares.append(float(sizes[ritz.values > 0].sum() / sizes.sum()))
    return sum(shares) / len(shares)


def _grown(claim: str, own: list[Look], measure: Callable[[Look], float]) -> Verdict:
    values = {look.epoch: measure(look) for look in own}
    said = ", ".join(f"epoch {after:g}: {value:.4g}" for after, value in values.items())
    numbers = list(values.values())
    return Verdict(claim, numbers[-1] > numbers[0] if len(numbers) > 1 else None, said)


ARTIFACT = Artifact(
    title="supplement, figure 3: spectra of four frameworks over the epochs",
    cells=cells,
    show=show,
)
