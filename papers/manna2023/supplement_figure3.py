"""Supplement, figure 3: how the spectra of four frameworks change while they are trained."""

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import Job
from papers.machinery.verdicts import RULE
from papers.manna2023.frameworks import EPOCHS, EVOLVING, among, evolving
from papers.manna2023.spectra import (
    Look,
    at_first,
    epoch,
    grown,
    looks,
    no_minimum,
    notes,
    paneled,
    table,
    top,
)


def jobs(scale: Scale) -> list[Job]:
    """The four, each at several epochs."""
    return [job for name in among(scale, EVOLVING) for job in evolving(scale, name)]


def render(scale: Scale, results: Results) -> Rendered:
    """Draw each over the epochs; the fourth verdict of section 3.4."""
    some = {name: looks(results, name, evolving(scale, name)) for name in EVOLVING}
    every = [look for own in some.values() for look in own]
    return Rendered(
        tables=[table(every)],
        verdicts=[
            no_minimum(
                every,
                "none of the four is at a minimum at any of the epochs",
                len(jobs(scale)) * len(EPOCHS[scale]),
            ),
            *(
                grown(
                    f"from the first to the last epoch the mass of {name}'s spectrum moves to "
                    "positive eigenvalues",
                    own,
                    positive,
                )
                for name, own in some.items()
            ),
            *(
                grown(
                    f"from the first to the last epoch {name}'s positive eigenvalues grow",
                    own,
                    top,
                )
                for name, own in some.items()
            ),
        ],
        pictures={"supplement-figure3": paneled(at_first(some), epoch, columns=2)},
        notes=[
            *notes(scale, every),
            "mass on the positive side: of the sum of all eigenvalues' sizes, estimated by the "
            "weights of the Ritz values, the share of the positive ones",
            RULE,
        ],
    )


def positive(look: Look) -> float:
    """Return the share of positive eigenvalues in the sum of all sizes: 1 at a minimum."""
    shares = []
    for ritz in look.spectrum.probes:
        sizes = ritz.weights * abs(ritz.values)
        shares.append(float(sizes[ritz.values > 0].sum() / sizes.sum()))
    return sum(shares) / len(shares)


ARTIFACT = Artifact(
    title="supplement, figure 3: spectra of four frameworks over the epochs",
    jobs=jobs,
    render=render,
)
