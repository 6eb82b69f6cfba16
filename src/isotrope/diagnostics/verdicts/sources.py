"""Sources of the thresholds that are not from a paper, and lists of verdicts with one cause."""

ZOO = (
    "we chose the limit with the parts `tuning` and `first` of our benchmark of faulty trainings, "
    "and tested it with the part `judged` (docs/results/zoo.csv)"
)

OURS = (
    "we chose the limit ourselves; no training of our benchmark has this fault, and no healthy "
    "training there got this verdict"
)

NEWER = (
    "we chose the limit after our benchmark (docs/results/zoo.csv) was finished. We diagnosed only "
    "the healthy text trainings of its part `judged` again, and none of them got this verdict"
)

EFFECTS = (
    *("dimensional-collapse", "false-negatives", "norms-too-large", "negatives-not-hard"),
    *("never-dissipating", "losing-pull", "anisotropic-start", "overfitting"),
)
"""Verdicts that follow from a collapse, or from a cause of a collapse."""

DONE = ("nothing-left-to-learn", "dissipated-early")
"""Verdicts on anchors that have no gradient."""
