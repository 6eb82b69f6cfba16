"""Sources of the thresholds that no paper gives."""

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
