"""Figure 4: MIOv3's spectrum against those of other frameworks; three verdicts of section 3.4."""

from papers.machinery.artifact import Artifact, Rendered, Results, Scale
from papers.machinery.job import Job
from papers.machinery.verdicts import RULE, Verdict, above, minus
from papers.manna2023.frameworks import among, at_end
from papers.manna2023.spectra import (
    Look,
    around_zero,
    at_seeds,
    ends,
    first,
    negative,
    no_minimum,
    notes,
    paneled,
    said,
    spread_of_batches,
    table,
    top,
)
from papers.paper_numbers import printed

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


def jobs(scale: Scale) -> list[Job]:
    """One spectrum of each framework."""
    return [job for name in among(scale, FRAMEWORKS) for job in at_end(scale, name)]


def render(scale: Scale, results: Results) -> Rendered:
    """Draw the three panels and all together, and test what section 3.4 says of them."""
    some = ends(results, scale, FRAMEWORKS)
    every = [look for own in some.values() for look in own]
    count = len(jobs(scale))
    noise = spread_of_batches(results, scale, negative)
    one = {look.name: look for look in first(some)}
    panels = {p: [one[n] for n in names if n in one] for p, names in PANELS.items()}
    panels |= {name: [look] for name, look in one.items()}  # each on axes of its own
    return Rendered(
        tables=[table(every)],
        verdicts=[
            no_minimum(every, "no framework ends in a minimum", count),
            around_zero("most eigenvalues of every framework lie around zero", every, count),
            _sharp(some),
            *(_fewer(some, name, noise) for name in ("BYOL", "DCL", "DCLW")),
            *(_above(some, name) for name in ("DCL", "DCLW")),
        ],
        pictures={"figure4": paneled(panels, lambda look: look.name)},
        notes=[
            *notes(scale, every),
            f"section 3.4 names no number for its large number of eigenvalues: {_MANY} of 100 are "
            "taken for one, in every seed; fewer than half is decided with two standard deviations "
            "over batches, too",
            RULE,
        ],
    )


def _sharp(some: dict[str, list[Look]]) -> Verdict:
    claim = f"BYOL has eigenvalues above {SHARP:g}"
    if "BYOL" not in some:
        return Verdict(claim, None)
    tops = {name: at_seeds(own, top) for name, own in some.items()}
    known = [name for name in ("BYOL", "MIOv3") if name in tops]
    told = ", ".join(f"{name} {said(tops[name].values())}" for name in known)
    return Verdict(claim, above(minus(tops["BYOL"], SHARP)), f"lambda_max: {told}")


def _fewer(some: dict[str, list[Look]], name: str, noise: float | None) -> Verdict:
    claim = f"{name} has less than half as many negative eigenvalues as MIOv3"
    if name not in some or "MIOv3" not in some:
        return Verdict(claim, None)
    own, other = (at_seeds(some[n], negative) for n in (name, "MIOv3"))
    half = {seed: HALF * count for seed, count in other.items()}
    told = f"{said(own.values())} against {said(other.values())} Ritz values"
    return Verdict(claim, above(minus(half, own), 2 * (noise or 0.0)), told)


def _above(some: dict[str, list[Look]], name: str) -> Verdict:
    claim = f"{name} has many eigenvalues above all but one of MIOv3's"
    if name not in some or "MIOv3" not in some:
        return Verdict(claim, None)
    seconds = at_seeds(some["MIOv3"], lambda look: float(look.spectrum.probes[0].values[-2]))
    counts = {
        look.seed: look.spectrum.count(seconds[look.seed], float("inf"))
        for look in some[name]
        if look.seed in seconds
    }
    if not counts:
        return Verdict(claim, None)
    told = f"{said(counts.values())} above {said(seconds.values())}"
    return Verdict(claim, min(counts.values()) >= _MANY, told)


ARTIFACT = Artifact(
    title="figure 4: the spectrum of MIOv3 against those of other frameworks",
    jobs=jobs,
    render=render,
)
