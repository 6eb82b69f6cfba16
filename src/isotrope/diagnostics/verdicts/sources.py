"""Sources of the thresholds that are not from a paper, and lists of verdicts with one cause."""

ZOO = (
    "chosen on the parts `tuning` and `first` of our benchmark of faulty trainings, and tested on "
    "the part `judged` (docs/results/zoo.csv)"
)

OURS = (
    "our choice; no training of our benchmark has this fault, and no healthy one got this verdict"
)

NEWER = (
    "our choice, made after our benchmark (docs/results/zoo.csv). Only the healthy trainings on "
    "text of the part `judged` were diagnosed again, and none of them got this verdict"
)

EFFECTS = (
    *("dimensional-collapse", "false-negatives", "norms-too-large", "negatives-not-hard"),
    *("never-dissipating", "losing-pull", "anisotropic-start", "overfitting"),
)
"""Verdicts that follow from a collapse, or from a cause of a collapse."""

DONE = ("nothing-left-to-learn", "dissipated-early")
"""Verdicts on anchors that have no gradient."""
