"""The Doctor's verdicts, one record each, ordered from cause to effect.

To add a verdict, write a :class:`~isotrope.diagnostics.verdict.Verdict` into one of these files,
before the verdicts that it can cause. Also write its page (see CONTRIBUTING.md). A number that was
not measured never leads to a finding.
"""

from isotrope.diagnostics.verdict import Verdict
from isotrope.diagnostics.verdicts import collapse, forces, outcome, positives, unexamined

__all__ = ["HEALTHY", "VERDICTS"]

HEALTHY = Verdict("healthy", "no fault was found")

VERDICTS: dict[str, Verdict] = {
    verdict.slug: verdict
    for verdict in (
        HEALTHY,
        forces.PUSHED_POSITIVES,
        *vars(positives).values(),
        forces.TEMPERATURE_TOO_LOW,
        *vars(collapse).values(),
        *vars(forces).values(),
        *vars(outcome).values(),
        *vars(unexamined).values(),
    )
    if isinstance(verdict, Verdict)
}
"""Every verdict by its name: causes before their effects, as the files declare them."""
