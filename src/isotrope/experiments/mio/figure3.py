"""Figure 3: densities of the eigenvalues of the three losses after the last epoch."""

import numpy as np

from isotrope.diagnostics.curvature import density
from isotrope.experiments.mio.frameworks import among, at_end
from isotrope.experiments.mio.spectra import Look, drawn, ends, no_minimum, notes, table
from isotrope.experiments.reproduce.artifact import Artifact, Found, Scale, Shown, Verdict
from isotrope.experiments.reproduce.cell import Cell

LOSSES = ("MIOv1", "MIOv2", "MIOv3")
_POINTS = 1000


def cells(scale: Scale) -> list[Cell]:
    """The spectra of the three losses, those of figure 2."""
    return [at_end(scale, name) for name in among(scale, LOSSES)]


def show(scale: Scale, found: Found) -> Shown:
    """Draw, and compare what lies above the bulk."""
    some = ends(found, scale, LOSSES)
    every = list(some.values())
    wanted = len(among(scale, LOSSES))
    return Shown(
        tables=[table(every)],
        verdicts=[
            no_minimum(every, "none of the three losses ends in a minimum", wanted),
            _reach(some),
            _denser(some),
        ],
        pictures={"figure3": drawn(every, lambda look: look.name)},
        notes=notes(scale, every),
    )


def _reach(some: dict[str, Look]) -> Verdict:
    claim = "the eigenvalues of MIOv3 reach beyond the largest of MIOv1 and MIOv2"
    tops = {name: look.spectrum.largest for name, look in some.items()}
    said = ", ".join(f"{name} {top:.4g}" for name, (top, _) in tops.items())
    if len(tops) < len(LOSSES):
        return Verdict(claim, None, said)
    top, error = tops.pop("MIOv3")
    return Verdict(claim, all(top - error > other + e for other, e in tops.values()), said)


def _denser(some: dict[str, Look]) -> Verdict:
    """Section 3.4: to the right, the density of MIOv3 is the largest for most of the interval."""
    claim = (
        "above 1 the density of MIOv3's eigenvalues is the largest on most of the interval where "
        "all three have some"
    )
    if len(some) < len(LOSSES):
        return Verdict(claim, None)
    top = min(look.spectrum.largest[0] for look in some.values())
    if top <= 1:
        return Verdict(claim, False, f"one of them has none above 1 (lambda_max {top:.3g})")
    where = np.linspace(1.0, top, _POINTS)
    found = {
        name: density(look.spectrum.probes, where, width=top / 100) for name, look in some.items()
    }
    others = np.maximum(found["MIOv1"], found["MIOv2"])
    share = float((found["MIOv3"] > others).mean())
    return Verdict(claim, share > 0.5, f"on {share:.0%} of 1 to {top:.3g}")


ARTIFACT = Artifact(
    title="figure 3: eigenvalue densities of MIOv1, MIOv2, MIOv3", cells=cells, show=show
)
