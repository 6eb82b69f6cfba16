"""Figure 4: MIOv3's spectrum against those of other frameworks; three verdicts of section 3.4."""

from isotrope.experiments.mio.frameworks import among, at_end
from isotrope.experiments.mio.spectra import (
    Look,
    bulk,
    ends,
    negative,
    no_minimum,
    notes,
    paneled,
    spread_of_batches,
    table,
)
from isotrope.experiments.paper_numbers import printed
from isotrope.experiments.reproduce.artifact import Artifact, Found, Scale, Shown, Verdict
from isotrope.experiments.reproduce.cell import Cell

PANELS = {
    "(a)": ("MIOv3", "SimCLR", "Barlow Twins"),
    "(b)": ("MIOv3", "SimCLR", "DCL", "DCLW"),
    "(c)": ("MIOv3", "DCL", "BYOL"),
}
FRAMEWORKS = tuple(dict.fromkeys(name for names in PANELS.values() for name in names))
PAPER = printed("mio", "figure4").rows
SHARP = float(PAPER["byol/some eigenvalues above"][0] or 0)
HALF = float(PAPER["negative eigenvalues over miov3's, below"][0] or 0)
_MANY = 10  # of 100: the paper says "a large number"


def cells(scale: Scale) -> list[Cell]:
    """One spectrum of each framework."""
    return [at_end(scale, name) for name in among(scale, FRAMEWORKS)]


def show(scale: Scale, found: Found) -> Shown:
    """Draw the three panels and all together, and test what section 3.4 says of them."""
    some = ends(found, scale, FRAMEWORKS)
    every = list(some.values())
    count = len(among(scale, FRAMEWORKS))
    noise = spread_of_batches(found, scale, negative)
    panels = {p: [some[n] for n in names if n in some] for p, names in PANELS.items()}
    panels |= {name: [look] for name, look in some.items()}  # each on axes of its own
    return Shown(
        tables=[table(every)],
        verdicts=[
            no_minimum(every, "no framework ends in a minimum", count),
            _peak(every, count),
            _sharp(some),
            *(_fewer(some, name, noise) for name in ("BYOL", "DCL", "DCLW")),
            *(_above(some, name) for name in ("DCL", "DCLW")),
        ],
        pictures={"figure4": paneled(panels, lambda look: look.name)},
        notes=[
            *notes(scale, every),
            f"section 3.4 names no number for its large number of eigenvalues: {_MANY} of 100 are "
            "taken for one; fewer than half is decided with two standard deviations over batches",
        ],
    )


def _peak(every: list[Look], wanted: int) -> Verdict:
    claim = "most eigenvalues of every framework lie around zero"
    shares = {look.name: bulk(look) for look in every}
    said = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    holds = None if len(every) < wanted else min(shares.values()) > 0.5
    return Verdict(claim, holds, said and f"within a hundredth of the largest: {said}")


def _sharp(some: dict[str, Look]) -> Verdict:
    claim = f"BYOL has eigenvalues above {SHARP:g}"
    if "BYOL" not in some:
        return Verdict(claim, None)
    tops = {name: look.spectrum.largest[0] for name, look in some.items()}
    said = ", ".join(f"{name} {tops[name]:.4g}" for name in ("BYOL", "MIOv3") if name in tops)
    return Verdict(claim, tops["BYOL"] > SHARP, f"lambda_max: {said}")


def _fewer(some: dict[str, Look], name: str, noise: float | None) -> Verdict:
    claim = f"{name} has less than half as many negative eigenvalues as MIOv3"
    if name not in some or "MIOv3" not in some:
        return Verdict(claim, None)
    own, other = negative(some[name]), negative(some["MIOv3"])
    return Verdict(
        claim, own + 2 * (noise or 0.0) < HALF * other, f"{own:g} against {other:g} Ritz values"
    )


def _above(some: dict[str, Look], name: str) -> Verdict:
    claim = f"{name} has many eigenvalues above all but one of MIOv3's"
    if name not in some or "MIOv3" not in some:
        return Verdict(claim, None)
    second = float(some["MIOv3"].spectrum.probes[0].values[-2])
    count = some[name].spectrum.count(second, float("inf"))
    return Verdict(claim, count >= _MANY, f"{count:g} above {second:.4g}")


ARTIFACT = Artifact(
    title="figure 4: the spectrum of MIOv3 against those of other frameworks",
    cells=cells,
    show=show,
)
