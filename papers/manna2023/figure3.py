"""Figure 3: densities of the eigenvalues of the three losses after the last epoch."""

import numpy as np

from isotrope.diagnostics.curvature import density
from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import Job
from papers.machinery.over_seeds import combine_by_seed
from papers.machinery.verdicts import RULE, Verdict, above, minus
from papers.manna2023.frameworks import among, at_end
from papers.manna2023.spectra import (
    Look,
    at_seeds,
    drawn,
    ends,
    first,
    no_minimum,
    notes,
    said,
    table,
    top,
)

LOSSES = ("MIOv1", "MIOv2", "MIOv3")
_POINTS = 1000


def jobs(scale: Scale) -> list[Job]:
    """The spectra of the three losses, those of figure 2."""
    return [job for name in among(scale, LOSSES) for job in at_end(scale, name)]


def render(scale: Scale, results: Results) -> Rendered:
    """Draw, and compare what lies above the bulk."""
    some = ends(results, scale, LOSSES)
    every = [look for own in some.values() for look in own]
    wanted = len(jobs(scale))
    return Rendered(
        tables=[table(every)],
        verdicts=[
            no_minimum(every, "none of the three losses ends in a minimum", wanted),
            _reach(some),
            _denser(some),
        ],
        pictures={"figure3": drawn(first(some), lambda look: look.name)},
        notes=[*notes(scale, every), RULE],
    )


def _reach(some: dict[str, list[Look]]) -> Verdict:
    claim = "the eigenvalues of MIOv3 reach beyond the largest of MIOv1 and MIOv2"
    tops = {name: at_seeds(own, top) for name, own in some.items()}
    told = ", ".join(f"{name} {said(one.values())}" for name, one in tops.items())
    if len(tops) < len(LOSSES):
        return Verdict(claim, None, told)
    own = tops.pop("MIOv3")
    return Verdict(claim, above(minus(own, combine_by_seed(max, list(tops.values())))), told)


def _denser(some: dict[str, list[Look]]) -> Verdict:
    """Section 3.4: to the right, the density of MIOv3 is the largest for most of the interval."""
    claim = (
        "above 1 the density of MIOv3's eigenvalues is the largest on most of the interval where "
        "all three have some"
    )
    if len(some) < len(LOSSES):
        return Verdict(claim, None)
    shares = {}
    for seed in set.intersection(*({look.seed for look in own} for own in some.values())):
        own = {n: look for n, looks in some.items() for look in looks if look.seed == seed}
        end = min(look.spectrum.largest[0] for look in own.values())
        if end <= 1:
            return Verdict(claim, False, f"one of them has none above 1 (lambda_max {end:.3g})")
        shares[seed] = _share(own, end)
    if not shares:
        return Verdict(claim, None)
    told = f"on {said([100 * share for share in shares.values()], '.0f')}% of it"
    return Verdict(claim, above(minus(shares, 0.5)), told)


def _share(own: dict[str, Look], end: float) -> float:
    """Return how much of the interval from 1 to a number MIOv3's density is the largest on."""
    where = np.linspace(1.0, end, _POINTS)
    found = {
        name: density(look.spectrum.probes, where, width=end / 100) for name, look in own.items()
    }
    return float((found["MIOv3"] > np.maximum(found["MIOv1"], found["MIOv2"])).mean())


ARTIFACT = Artifact(
    title="figure 3: eigenvalue densities of MIOv1, MIOv2, MIOv3", jobs=jobs, render=render
)
