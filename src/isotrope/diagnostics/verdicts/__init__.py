"""The doctor's rules: one for each verdict, ordered from cause to effect.

A rule takes a :class:`~isotrope.diagnostics.evidence.RunEvidence` and returns a finding or None.
A number that was not measured never leads to a finding.

A new verdict is a rule in one of these files and in ``RULES``, a line in ``findings.VERDICTS``, its
thresholds, the change for other trainers in ``advice``, and its page in
``docs/generate/verdict_advice.py``; tests name what is missing.
"""

from collections.abc import Callable

from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import Finding
from isotrope.diagnostics.verdicts.collapse import collapsed, dimensional_collapse, diverging
from isotrope.diagnostics.verdicts.forces import (
    dissipated_early,
    negatives_not_hard,
    never_dissipating,
    no_negatives,
    temperature_too_low,
)
from isotrope.diagnostics.verdicts.log_quality import not_finite
from isotrope.diagnostics.verdicts.norms import norms_too_large
from isotrope.diagnostics.verdicts.outcome import (
    anisotropic_start,
    nothing_left_to_learn,
    overfitting,
)
from isotrope.diagnostics.verdicts.positives import (
    dead_views,
    false_negatives,
    only_pulled,
    unrelated_positives,
)
from isotrope.diagnostics.verdicts.similarities import losing_pull

__all__ = ["EXPLAINS", "RULES"]

RULES: tuple[Callable[[RunEvidence], Finding | None], ...] = (
    not_finite,
    no_negatives,
    dead_views,
    unrelated_positives,
    diverging,
    only_pulled,
    collapsed,
    dimensional_collapse,
    norms_too_large,
    negatives_not_hard,
    false_negatives,
    never_dissipating,
    temperature_too_low,
    nothing_left_to_learn,
    dissipated_early,
    losing_pull,
    anisotropic_start,
    overfitting,
)
"""The rules in order: causes before their effects."""

_EFFECTS_OF_COLLAPSE = {
    "dimensional-collapse",
    "false-negatives",
    "norms-too-large",
    "negatives-not-hard",
    "never-dissipating",
    "losing-pull",
    "anisotropic-start",
    "overfitting",
}

_DONE = {"nothing-left-to-learn", "dissipated-early"}

EXPLAINS: dict[str, set[str]] = {
    "no-negatives": {"collapsed", *_DONE, *_EFFECTS_OF_COLLAPSE},
    "dead-views": {*_DONE, "false-negatives", "losing-pull"},
    "unrelated-positives": {"diverging", "collapsed", "never-dissipating", *_EFFECTS_OF_COLLAPSE},
    "diverging": {"diverging", "collapsed", *_DONE, *_EFFECTS_OF_COLLAPSE},
    "collapsed": {*_DONE, *_EFFECTS_OF_COLLAPSE},
    "dimensional-collapse": {"false-negatives", "negatives-not-hard", "anisotropic-start"},
    "negatives-not-hard": {"false-negatives", "never-dissipating"},
    "only-pulled": {"collapsed", *_EFFECTS_OF_COLLAPSE},
    "temperature-too-low": _DONE,
    "nothing-left-to-learn": {"dissipated-early"},
}
"""The verdicts that follow from a finding, and are not reported beside it: in a batch that has
collapsed to a point no negative is harder than another, whatever the temperature."""
