"""Table 2: GD, W and R of the ineffective losses before and after, verified by autograd."""

from isotrope.paradigm import EXACT, build
from papers.li2024.losses import BERT, MODIFIED, ORIGINAL
from papers.li2024.printed_formulas import WORDS, proof_of, proved
from papers.li2024.printed_losses import AFTER, BEFORE, MISPRINT, SET_AFTER, SET_BEFORE
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling


def render(scale: Scale, results: Results) -> Rendered:
    """Return the components in words, the proofs of each, and the form trained in tables 3 to 5."""
    before, verdicts = proved(scale, BEFORE, "before modification")
    after, more = proved(scale, AFTER, "after modification")
    trained, proof = _trained(scale)
    return Rendered(
        tables=[before, after, trained],
        verdicts=[*verdicts, *more, proof],
        notes=[
            f"{SET_BEFORE}; {SET_AFTER}; float64; relative to the largest gradient of a batch, "
            "without what lies along h_i",
            "held constant, as the paper's own derivations do: the nearest negative of MHS and "
            "mMHS, all but h_i in mB and mV, anchors with d_i = 0 in mMHE, where L^u counts once",
            "VICReg fails in centring and in the diagonal of C, its hinge left out: eq. 11 is the "
            "gradient of the simplified loss below it",
            "appendix E prints the maximum of ||h_i - h_j|| in the alignment of mMHS, where only "
            f"the minimum fits: the maximum misses by {MISPRINT.error(scale):.2f}",
        ],
    )


def _trained(scale: Scale) -> tuple[Sheet, Ruling]:
    """The form of the released code, and the registry's proof of it."""
    rows, worst = [], 0.0
    for loss in (*ORIGINAL, *MODIFIED):
        settings = {**loss.tuned[BERT].values, **loss.more}
        error = proof_of(build(loss.objective, settings), scale)
        worst = max(worst, error)
        values = " ".join(f"{name}={value}" for name, value in settings.items())
        rows.append(
            [loss.name, f"{loss.objective} {values}", *WORDS["released"][loss.name], f"{error:.0e}"]
        )
    header = ["loss", "trained as", "GD", "W", "R", "in the registry"]
    return Sheet(header, rows, title="as the released code trains them (tables 3 to 5)"), Ruling(
        "formula and components agree for each of the eight as they are trained in tables 3 to 5",
        worst <= EXACT,
        f"largest error {worst:.0e}",
    )
