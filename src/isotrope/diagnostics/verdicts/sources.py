"""Sources of the thresholds that no paper gives, and verdicts that share a cause."""

ZOO = (
    "set on the tuning parts of the benchmark of broken trainings, judged on its last part "
    "(docs/results/zoo.csv)"
)

OURS = (
    "our choice; no training of the benchmark has this fault, and no healthy one has this verdict"
)

NEWER = (
    "our choice, newer than docs/results/zoo.csv: only the benchmark's healthy text trainings of "
    "the part `judged` were diagnosed again, and none of them has this verdict"
)

EFFECTS = (
    *("dimensional-collapse", "false-negatives", "norms-too-large", "negatives-not-hard"),
    *("never-dissipating", "losing-pull", "anisotropic-start", "overfitting"),
)
"""Verdicts that follow from a collapse, and from what leads to one."""

DONE = ("nothing-left-to-learn", "dissipated-early")
"""Verdicts on anchors that have no gradient."""
