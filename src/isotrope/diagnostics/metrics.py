"""The table of metrics: each number of a log, described once.

These records (:mod:`isotrope.diagnostics.metric`) define metrics.csv, the table in
docs/guide/anatomy.md, and the pictures, the glossary and the comparison of runs in a report. To add
a metric, add a record here, and the code that measures it to the file ``measured_in``.
"""

from functools import partial
from math import pi

from isotrope.diagnostics.metric import LOOP, Log, Metric, Panel

_length = partial(Panel, floor=0.0, least=0.0)  # the picture of a number from 0 up
_share = partial(_length, most=1.0)
# only in the result of a run, not in metrics.csv
_of_result = partial(Metric, logs=(), measured_in="training/loop.py")
_of_loop = partial(Metric, measured_in=LOOP)
_of_score = partial(Metric, measured_in="training/dev_scorer.py")
_of_held_out = partial(Metric, logs=("text",), measured_in="training/held_out_losses.py")
_of_doctor = partial(Metric, logs=("doctor",), measured_in="diagnostics/seen.py")
_of_labels = partial(_of_doctor, measured_in="diagnostics/seen_labels.py")

METRICS = (
    _of_result(
        "dev_start",
        "Dev score before training",
        "score of the model before training (step 0)",
        heading="Dev start",
    ),
    _of_result(
        "dev_best",
        "Dev score of the chosen step",
        "highest dev score of the run, including step 0; with --prefer trained, the score of the "
        "trained model, unless the original one was saved",
        heading="Dev chosen",
    ),
    _of_result("dev_best_step", "Chosen step", "step of this score", heading="At step", digits=0),
    _of_result(
        "dev_final", "Last dev score", "dev score after the last step", heading="Dev last step"
    ),
    _of_result(
        "linear",
        "Linear probe",
        "accuracy of a linear classifier on the encoder's features",
        measured_in="training/images/train.py",
        heading="Linear probe",
        only="images",
    ),
    _of_loop("step", "Step", "number of updates before the measurement"),
    _of_loop("epoch", "Epoch", "number of passes over the data so far"),
    _of_loop(
        "loss",
        "Loss",
        "value of the objective",
        panel=Panel("training", "The minimised loss; falls as training proceeds."),
    ),
    _of_loop("learning_rate", "Learning rate", "learning rate of the step"),
    _of_loop(
        "gradient_norm",
        "Gradient norm",
        "length of the gradient of all parameters",
        meaning="Length of the gradient of all parameters at a step, before gradient clipping.",
        panel=Panel(
            "norms",
            "Length of the gradient of all parameters.",
            least=0.0,
            logarithmic=True,
            place=1,
        ),
    ),
    Metric(
        "dissipation",
        "Gradient dissipation",
        "factor on an anchor's gradient, between 0 and 1; mean over the anchors that have "
        "negatives",
        meaning="The factor on an anchor's whole gradient, averaged over anchors. An anchor with "
        "a factor near 0 already distinguishes its positive from its negatives and no longer "
        "learns. An anchor with a factor below 0.01 is called dead. The picture is empty if no "
        "anchor has negatives: in batches of one row, and with a loss of single pairs.",
        symbol="GD",
        panel=_length(
            "gradient",
            "Factor on the gradient. Dead anchors (GD below 0.01) learn nothing.",
            title="Gradient dissipation, GD",
        ),
        line="GD",
        heading="GD",
    ),
    Metric(
        "dead",
        "Dead anchors",
        "share of the anchors with a GD below 0.01; anchors without negatives are not counted",
        beside="dissipation",
        line="dead anchors",
    ),
    Metric(
        "hardest_share",
        "Weight",
        "share of the push on an anchor that comes from its hardest negative",
        meaning="Share of the push on an anchor that comes from its hardest negative: 1 if no "
        "other negative pushes, 1/(N \N{MINUS SIGN} 1) if all N \N{MINUS SIGN} 1 negatives push "
        "equally.",
        symbol="W",
        panel=_share(
            "gradient",
            "A value of 1 means that only the hardest negative pushes.",
            title="Weight on the hardest negative, W",
        ),
        heading="Hardest share",
    ),
    Metric(
        "ratio",
        "Ratio",
        "pull of the positive divided by the push of the negatives",
        meaning="Pull of the positive on an anchor, divided by the push of its negatives. Above "
        "1, the pull is stronger.",
        symbol="R",
        panel=Panel(
            "gradient", "Pull of the positive divided by push of the negatives.", title="Ratio, R"
        ),
        heading="Ratio",
    ),
    Metric(
        "alignment",
        "Alignment",
        "mean squared distance between the two views of an input; lower is closer",
        meaning="Mean squared distance between the two views of one text or image on the unit "
        "sphere: 0 if they coincide, 2 if they are unrelated; lower is closer.",
        beside="uniformity",
        heading="Align\N{SOFT HYPHEN}ment",
    ),
    Metric(
        "uniformity",
        "Uniformity",
        "log of the mean of exp(-2 \N{MULTIPLICATION SIGN} squared distance of two embeddings); "
        "lower is more spread out",
        meaning="Logarithm of the mean of exp(\N{MINUS SIGN}2 d\N{SUPERSCRIPT TWO}), where d is "
        "the distance of two embeddings. 0: all embeddings are one point; about \N{MINUS SIGN}4: "
        "the embeddings spread evenly. Lower is more spread out.",
        panel=Panel(
            "spread",
            "The ring is the first step, the dot the last. Lower is better on both axes.",
            title="Uniformity over alignment",
            key="trajectory",
            kind="path",
            across="alignment",
        ),
        heading="Unifor\N{SOFT HYPHEN}mity",
    ),
    Metric(
        "norm",
        "Embedding norm",
        "mean length of the embeddings that the objective receives",
        meaning="Mean length of the embeddings before they are scaled to length 1. Gradients on "
        "embeddings are divided by this length, so growing norms slow a training down.",
        panel=Panel("norms", "Mean length before the scaling.", least=0.0, logarithmic=True),
        line="embeddings that the objective gets",
        heading="Norm",
        only="images",
    ),
    Metric(
        "above_bound",
        "Bound of the ratio",
        "share of the anchors that a small step brings nearer to the positive (Li et al. 2024, "
        "lemma 1); anchors with a gradient dissipation below 0.01 are not counted",
        meaning="Share of anchors whose ratio R is above the bound of lemma 1 (Li et al. 2024): a "
        "small step brings them nearer to their positives, although the hardest negative pushes "
        "them. Anchors with a gradient dissipation below 0.01 are not counted.",
        panel=_share(
            "gradient",
            "Among anchors with GD >= 0.01: share that a small step brings nearer to the positive.",
            title="Ratio above its bound",
        ),
    ),
    Metric(
        "gradient_alignment",
        "Pull and push",
        "mean length of the positive's pull on an anchor, in the tangent plane of the unit sphere",
        meaning="Mean lengths of the pull and of the push on an anchor, in the tangent plane of "
        "the unit sphere: a normalised anchor can move only in this plane (Nie et al. 2023).",
        panel=_length(
            "gradient", "Two curves: mean length of the pull, and of the push.", key="parts"
        ),
        line="pull",
    ),
    Metric(
        "gradient_uniformity",
        "Push",
        "mean length of the negatives' push on an anchor, in the tangent plane of the unit sphere",
        beside="gradient_alignment",
        line="push",
    ),
    Metric(
        "embedding_gradient",
        "Gradient on the embedding",
        "mean length of the gradient on an embedding before it is scaled to length 1",
        meaning="Mean length of the gradient on an embedding before it is scaled to length 1: the "
        "gradient on the scaled embedding, divided by the norm (Draganov et al. 2024).",
        panel=_length(
            "norms", "The longer an embedding, the smaller its gradient.", logarithmic=True
        ),
    ),
    Metric(
        "positive_mean",
        "Angles",
        "mean angle between an anchor and its positive",
        meaning="Angles between an anchor and its positive, and between an anchor and its "
        "negatives, in radians. Lines are means, bands one standard deviation (Li et al. 2024, "
        "figure 9).",
        unit="rad",
        panel=_length(
            "angles",
            "Mean and one standard deviation; the curves should be far apart. 90 degrees: dashed.",
            title="Angles to positive and negatives",
            key="angles",
            most=pi,
            mark=pi / 2,
            angular=True,
        ),
        line="positive",
        spread="positive_std",
    ),
    Metric(
        "positive_std",
        "Deviation of the angles to positives",
        "standard deviation of the angle between an anchor and its positive",
        unit="rad",
    ),
    Metric(
        "negatives",
        "Negatives",
        "mean number of negatives of an anchor; 0 if the loss compares only single pairs",
    ),
    Metric(
        "negative_mean",
        "Angles to negatives",
        "mean angle between an anchor and its negatives",
        unit="rad",
        beside="positive_mean",
        line="negatives",
        spread="negative_std",
    ),
    Metric(
        "negative_std",
        "Deviation of the angles to negatives",
        "standard deviation of the angle between an anchor and its negatives",
        unit="rad",
    ),
    Metric(
        "distance_gap",
        "Distance gap",
        "mean distance from an anchor to its negatives, minus the distance to its positive",
        meaning="Mean distance from an anchor to its negatives, minus the distance to its "
        "positive. Below 0, the negatives are nearer (Nie et al. 2023, figure 3).",
        symbol="d",
        panel=Panel("angles", "How much farther the negatives are than the positive.", floor=0.0),
    ),
    Metric(
        "opposite_halves",
        "Opposite halves",
        "share of positive pairs more than a right angle apart",
        meaning="The share of positive pairs whose two views are more than a right angle apart. "
        "If such an angle grows, a loss of cosines pulls the views together more and more weakly.",
        panel=_share("angles", "Share of positive pairs more than a right angle apart."),
        line="over \N{GREEK SMALL LETTER PI}/2",
        heading="Opp. halves",
        only="images",
        digits=3,
    ),
    Metric(
        "far_opposite",
        "Nearly opposite pairs",
        "share of positive pairs with an angle above 7 \N{GREEK SMALL LETTER PI}/8",
        beside="opposite_halves",
        line="over 7\N{GREEK SMALL LETTER PI}/8",
    ),
    Metric(
        "std",
        "Deviation per dimension",
        "standard deviation of a coordinate of the normalised embeddings, mean over coordinates",
        meaning="Standard deviation of a coordinate of the normalised embeddings, averaged over "
        "the coordinates. 0: all embeddings are equal; 1/\N{SQUARE ROOT}d: they spread evenly "
        "over d dimensions.",
        panel=_length(
            "spread", "Near 0, the normalised embeddings have collapsed to one point.", place=1
        ),
    ),
    Metric(
        "effective_rank",
        "Effective rank",
        "number of directions over which the embeddings spread",
        meaning="Number of directions over which the embeddings spread: 1 on a line, the number "
        "of dimensions if all directions are used evenly.",
        panel=_length("spread", "Number of directions over which the embeddings spread."),
    ),
    Metric(
        "false_negatives",
        "False negatives",
        "share of the anchors with a negative that looks like a positive",
        meaning="The share of anchors with a negative that looks like a positive: the negative is "
        "at least as near to the anchor as the positive, and much nearer than the average "
        "negative. Examples are copies of a text in one batch, and images of one class.",
        panel=_share("gradient", "Share of anchors with a negative that looks like a positive."),
    ),
    Metric(
        "norm_backbone",
        "Norm of the features",
        "mean length of the encoder's features, the input of the projection head",
        logs=("images",),
        measured_in="training/images/method.py",
        beside="norm",
        line="features of the encoder",
    ),
    _of_doctor(
        "misfit",
        "Misfit",
        "share of the gradient on the embeddings that comes from no compared pair but, for "
        "example, from a penalty on norms",
        measured_in="diagnostics/anatomy.py",
    ),
    _of_doctor(
        "radial",
        "Radial gradient",
        "share of the gradient that changes the lengths of embeddings: 0 for losses of cosines, "
        "large for losses of dot products or distances",
    ),
    _of_doctor(
        "temperature",
        "Temperature",
        "temperature of the loss's softmax, computed from the gradient of the loss",
    ),
    _of_labels(
        "pulled",
        "Pulled pairs",
        "for a loss of pairs: share of the pairs with a gradient that are pulled together; the "
        "other pairs with a gradient are pushed apart",
    ),
    _of_labels(
        "label_gap",
        "Gap of the labels",
        "for a loss of labelled pairs: how much larger the mean angle is in pairs with low labels "
        "than in pairs with high labels, in units of the larger standard deviation of the angles",
    ),
    _of_labels(
        "graded_gap",
        "Gap of graded labels",
        "for labels other than 0 and 1: how much larger the mean angle is in pairs that the loss "
        "pushes apart than in pairs that it pulls together, in units of the larger standard "
        "deviation of the angles",
    ),
    _of_labels(
        "unexplained",
        "Unexplained variance",
        "for a mean squared error of cosines and labels: the error of a batch, divided by the "
        "variance of its labels; 1 if the mean label is predicted for each pair",
    ),
    _of_score(
        "dev",
        "Dev score",
        "score on held-out data",
        meaning="The score on held-out data during training. Step 0 is the model before training. "
        "The model with the highest score was saved or, with --prefer trained, the trained model, "
        "unless it was clearly worse.",
        logs=("text", "doctor"),
        panel=Panel(
            "training",
            "Dashed line: score before training. Dot: step whose model was saved (with --refit, "
            "the mean of this model and a second one).",
            kind="score",
            place=-2,
        ),
    ),
    _of_score(
        "knn",
        "kNN accuracy",
        "share of test images whose nearest training images have the same class",
        meaning="The share of test images whose nearest training images, by the encoder's "
        "features, have the same class. Step 0 is the encoder before training. The last step is "
        "saved: a step that was chosen on the test images would have too high a score.",
        unit="%",
        logs=("images",),
        panel=Panel(
            "training",
            "Dashed line: accuracy before training. Dot: last step, whose model was saved.",
            kind="score",
            least=0.0,
            most=100.0,
            place=-1,
        ),
    ),
    _of_held_out(
        "trained_contrastive",
        "InfoNCE on training data",
        "InfoNCE at temperature 0.05 on as many training records as there are held-out records",
        beside="held_out_contrastive",
        line="trained on",
    ),
    _of_held_out(
        "held_out_contrastive",
        "Held-out InfoNCE",
        "InfoNCE at temperature 0.05 on held-out records",
        meaning="InfoNCE at temperature 0.05, with dropout, on up to 512 held-out records and on "
        "as many training records. Both losses fall while training generalises (Nie et al. 2023, "
        "fig. 1).",
        panel=Panel("training", "When the held-out curve begins to rise, training overfits."),
        line="held out",
    ),
    _of_held_out("held_out_alignment", "Held-out alignment", "alignment of held-out records"),
    _of_held_out("held_out_uniformity", "Held-out uniformity", "uniformity of held-out records"),
    _of_loop(
        "samples_per_second",
        "Texts per second",
        "texts, or pairs of texts, per second of training",
        logs=("text",),
        heading="Samples /\N{NARROW NO-BREAK SPACE}s",
        only="text",
        digits=0,
    ),
    _of_loop(
        "images_per_second",
        "Images per second",
        "images per second of training",
        logs=("images",),
        heading="Images /\N{NARROW NO-BREAK SPACE}s",
        only="images",
        digits=0,
    ),
    _of_result(
        "seconds",
        "Duration",
        "duration of the training steps, without evaluation and saving",
        unit="s",
        heading="Sec\N{SOFT HYPHEN}onds",
        digits=1,
    ),
)
"""Every metric. Those of a log are in the order of its columns in metrics.csv."""


def measured_in(file: str) -> tuple[str, ...]:
    """Return the columns that a file in ``src/isotrope`` measures."""
    return tuple(metric.column for metric in METRICS if metric.measured_in == file)


MEASURED = measured_in("diagnostics/observe.py")
"""The keys of the result of ``observe.measure``."""
TRACKED = measured_in("training/images/method.py")
"""The numbers that trainings on images measure in addition."""


def columns(log: Log) -> tuple[str, ...]:
    """Return the columns of metrics.csv for a run on text or images, or for the Doctor."""
    return tuple(metric.column for metric in METRICS if log in metric.logs)
