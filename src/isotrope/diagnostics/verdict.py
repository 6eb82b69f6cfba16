"""Lists every threshold of the doctor's rules in one table, with its source.

What no paper gives was set on the tuning parts of a benchmark of small trainings, most of them
broken on purpose (benchmarks/zoo), and judged on its last part.
"""

from dataclasses import dataclass
from typing import Literal

from isotrope.diagnostics.findings import Evidence

__all__ = ["THRESHOLDS", "ZOO", "Threshold", "compared"]

ZOO = (
    "set on the tuning parts of the benchmark of broken trainings, judged on its last part "
    "(docs/results/zoo.csv)"
)

OURS = (
    "our choice; no training of the benchmark has this fault, and no healthy one has this verdict"
)

NEWER = (
    "our choice; the verdict is newer than docs/results/zoo.csv: of the benchmark only the healthy "
    "text trainings of the part `judged` were diagnosed again, and none of them has this verdict"
)


@dataclass(frozen=True)
class Threshold:
    """One number that decides about a verdict.

    Attributes:
        label: what is measured, in a few words, as a diagnosis prints it.
        value: the threshold; a measured number that is equal to it is healthy.
        unit: the unit of the value.
        side: the side on which a measured number counts: ``above`` the value or ``below`` it.
        decides: the verdict, and what is measured.
        source: paper and figure, or how the value was set.
    """

    label: str
    value: float
    unit: str
    side: Literal["above", "below"]
    decides: str
    source: str

    def crossed_by(self, number: float | None) -> bool:
        """Return whether a number lies beyond the threshold; None, not measured, does not."""
        if number is None:
            return False
        return number > self.value if self.side == "above" else number < self.value


THRESHOLDS: dict[str, Threshold] = {
    "rows_not_finite": Threshold(
        "logged steps with numbers that are not finite",
        0,
        "",
        "above",
        "diverging: steps with a number that is NaN, infinite or above 1e30",
        "nothing to set",
    ),
    "without_negatives": Threshold(
        "batches in which no anchor has a negative",
        0.5,
        "of the logged steps",
        "above",
        "no-negatives: steps of a batch in which no anchor has a negative",
        "nothing to set: a batch of one, or of one group, has none at all",
    ),
    "gradient_alone": Threshold(
        "mean gradient of an anchor",
        1e-6,
        "",
        "below",
        "no-negatives, of a loss that is not one of ours: mean gradient of an anchor; a loss of "
        "pairs has one, and needs no negatives",
        "0 of a softmax over the positive alone, up to rounding",
    ),
    "view_angle": Threshold(
        "largest angle between the two views of a text",
        0.001,
        "rad",
        "below",
        "dead-views: mean angle of an anchor and its positive, largest of all logged steps",
        "0 without dropout, up to rounding; " + ZOO,
    ),
    "collapse_uniformity": Threshold(
        "uniformity at the end (0: one point, -4: even)",
        -0.01,
        "",
        "above",
        "collapsed: uniformity (0: one point; -4: even), median of the last third",
        ZOO,
    ),
    "collapse_std": Threshold(
        "deviation of the dimensions at the end",
        1e-5,
        "",
        "below",
        "collapsed: deviation of the dimensions of the normalised embeddings, likewise; where all "
        "are 0 they have no direction, and uniformity says nothing",
        "1/sqrt(d) if they lie evenly; nothing but equal rows is below",
    ),
    "rank_share": Threshold(
        "effective rank of a batch",
        0.1,
        "of min(n - 1, d)",
        "below",
        "dimensional-collapse: effective rank of a batch over the most it can be",
        ZOO,
    ),
    "decay_that_kills": Threshold(
        "weight decay",
        5e-3,
        "",
        "above",
        "collapsed, because of --weight-decay: the decay of images",
        "Draganov et al., 2024, table 1: chance at 5e-2, 54.0 against 81.3 at 5e-3 (SimCLR)",
    ),
    "separation": Threshold(
        "lead of positives over negatives before training",
        0.15,
        "standard deviations",
        "below",
        "unrelated-positives: (mean angle to negatives - to positives) / deviation of either, "
        "before training",
        ZOO,
    ),
    "lost_spread": Threshold(
        "spread of the embeddings after a third of the run",
        0.2,
        "of the start",
        "below",
        "diverging: deviation of the dimensions in the first third of the run over that of step 0",
        ZOO,
    ),
    "lost_gap": Threshold(
        "lead of positives over negatives at the end",
        0.5,
        "of the start",
        "below",
        "diverging, together with `loss_rise` or `lost_spread_at_the_end`: how far positives are "
        "ahead of negatives, or pairs of higher labels of others, in standard deviations, at the "
        "end over that of the first logged step",
        "our choice, after two of the questions of users had received the verdict healthy",
    ),
    "lost_spread_at_the_end": Threshold(
        "spread of the embeddings at the end",
        0.2,
        "of the start",
        "below",
        "diverging, together with `lost_gap`: deviation of the dimensions at the end of the run "
        "over that of step 0",
        "as lost_spread: from even directions, a mean cosine of 0.96; a temperature of 0.02 brings "
        "a masked language model to 0.73 of its spread, and positives stay as far ahead",
    ),
    "loss_rise": Threshold(
        "loss at the end",
        1.0,
        "of the start",
        "above",
        "diverging: loss of the last third over the loss of step 0",
        ZOO,
    ),
    "norm_jump": Threshold(
        "norm after a third of the run",
        10.0,
        "times the start",
        "above",
        "diverging, of images, together with `norm`: norm in the first third over that of step 0",
        "norms grow by (learning rate x gradient)^2 (Draganov et al., 2024, corollary 3.2); value "
        + ZOO,
    ),
    "norm_jump_text": Threshold(
        "norm after a third of the run",
        4.0,
        "times the start",
        "above",
        "diverging, of text: norm in the first third of the run over that of step 0",
        "as norm_jump; value " + ZOO,
    ),
    "false_negatives": Threshold(
        "a negative looks like a positive for",
        0.3,
        "of the anchors",
        "above",
        "false-negatives: anchors with a negative that looks like a positive",
        OURS,
    ),
    "copies": Threshold(
        "near copies",
        0.2,
        "of the texts",
        "above",
        "false-negatives: texts with a copy in a sample of the data, that differs in a few words",
        ZOO,
    ),
    "radial": Threshold(
        "gradient along the embedding",
        0.05,
        "of the gradient",
        "above",
        "norms-too-large, and diverging by norms, are not reported above this: the loss is one of "
        "dot products or distances, and embeddings may be as long as they like",
        "0 of cosines, up to rounding; as much as components may leave out",
    ),
    "norm": Threshold(
        "mean norm of the embeddings",
        100.0,
        "",
        "above",
        "norms-too-large: mean norm of what the objective sees",
        "gradients shrink as 1/norm, convergence as 1/norm^2 (Draganov et al., 2024, proposition "
        "3.1, figure 2); " + ZOO,
    ),
    "norm_without_decay": Threshold(
        "mean norm of the embeddings",
        1.0,
        "",
        "above",
        "norms-too-large, together with the decay: mean norm of what the objective sees",
        "Draganov et al., 2024, table 1: 13.5 to 31.4 without decay, 0.41 to 0.81 at 5e-4",
    ),
    "decay_that_holds": Threshold(
        "weight decay",
        1e-5,
        "",
        "below",
        "norms-too-large, together with the norm: weight decay of images from scratch",
        "Draganov et al., 2024, table 1: 5e-6 does no more than 0",
    ),
    "hardest_times_uniform": Threshold(
        "push on the hardest negative",
        1.5,
        "times an even share",
        "below",
        "negatives-not-hard: share of the weight on the hardest negative times their number",
        "Li et al., 2024, figure 3 and section 3.2.2 (falls from temperature 0.3 on); value " + ZOO,
    ),
    "gd_on_ideal": Threshold(
        "dissipation (GD) on an ideal batch",
        0.5,
        "",
        "above",
        "never-dissipating: GD of the objective on an ideal batch (h = h', negatives orthogonal)",
        "Li et al., 2024, table 2: 1 for the ineffective objectives; 0 for those that stop",
    ),
    "gd_at_the_end": Threshold(
        "dissipation (GD) at the end",
        0.99,
        "",
        "above",
        "never-dissipating: mean GD, median of the last third",
        "Li et al., 2024, sections 3.1 and 4; Nie et al., 2023, section 4.2",
    ),
    "unreachable_margin": Threshold(
        "margin",
        1.0,
        "times the largest distance of unit vectors",
        "above",
        "never-dissipating, of a triplet loss that is not one of ours: margin",
        "nothing to set: no distance is a larger margin above another",
    ),
    "done_at_first": Threshold(
        "done (GD below 0.01) at the first logged step",
        0.5,
        "of the anchors",
        "above",
        "nothing-left-to-learn: anchors with GD < 0.01 at the first logged step, before any update",
        NEWER,
    ),
    "done_throughout": Threshold(
        "done (GD below 0.01) throughout",
        0.75,
        "of the anchors",
        "above",
        "nothing-left-to-learn: anchors with GD < 0.01, median of the whole run; without a dev "
        "score it is the value of dead_early",
        NEWER,
    ),
    "dead_early": Threshold(
        "done (GD below 0.01) after the first fifth",
        0.9,
        "of the anchors",
        "above",
        "dissipated-early: anchors with GD < 0.01, median of the whole run after its first fifth",
        "GD below 0.01 as in the released code of Li et al., 2024; share " + OURS,
    ),
    "hardest_at_first": Threshold(
        "hardest negative at the first logged step",
        0.95,
        "of the push",
        "above",
        "temperature-too-low: share of the hardest negative at the first logged step",
        "Li et al., 2024, section 3.2.2: a temperature near 0 is the hardest negative alone; of "
        "all-MiniLM-L6-v2 on docstrings 0.38 to 0.58 at 0.05, 0.96 and more from 0.005 down "
        "(31 to 255 negatives)",
    ),
    "temperature_of_cosines": Threshold(
        "temperature",
        0.01,
        "",
        "below",
        "temperature-too-low, of a loss of cosines: temperature; of other scores any may be",
        "0.01 to 0.05 is what embedding models are trained with; " + NEWER,
    ),
    "done_by_temperature": Threshold(
        "done (GD below 0.01) at the first logged step",
        0.3,
        "of the anchors",
        "above",
        "temperature-too-low: anchors with GD < 0.01 at the first logged step",
        "as hardest_at_first: 0.07 to 0.16 at 0.05, 0.6 and more from 0.005 down",
    ),
    "decided": Threshold(
        "decided at the first logged step",
        0.95,
        "of the anchors",
        "above",
        "temperature-too-low, instead of `done_by_temperature`, where the hardest negative has as "
        "large a share of the push at the end: GD + anchors with GD < 0.01, at the first logged "
        "step",
        "1 at a temperature of 0, where GD is 0 or 1; of a masked language model 0.86 at 0.02 and "
        "0.90 at 0.05 (31 and 63 negatives)",
    ),
    "pulled": Threshold(
        "pulled together",
        0.99,
        "of the pairs",
        "above",
        "only-pulled: labelled pairs that are pulled together, of those with a gradient, where all "
        "labels of a batch are equal",
        "nothing to set: with labels of one kind it is 1",
    ),
    "label_gap": Threshold(
        "lead of pairs with high labels at the first logged step",
        -1.0,
        "standard deviations",
        "below",
        "unrelated-positives, of labelled pairs: mean angle of those below the mean label minus "
        "that of the others, at the first logged step",
        "two standard errors of 8 pairs on either side; " + NEWER,
    ),
    "both_fall": Threshold(
        "angle of positives, its change since the first logged step",
        0.05,
        "rad",
        "above",
        "spreading: mean angle of positives at the end minus that at the first logged step, if "
        "that of negatives has risen by more",
        "our choice; it decides between two words for healthy",
    ),
    "positive_closer": Threshold(
        "angle of positives, its change since the first logged step",
        -0.02,
        "rad",
        "below",
        "losing-pull is not reported if positives came closer by more than this",
        NEWER,
    ),
    "gain": Threshold(
        "gain on the dev set",
        1.0,
        "points",
        "below",
        "nothing-left-to-learn, and dissipated-early of a training with a dev score: its gain",
        OURS,
    ),
    "above_bound": Threshold(
        "ratio above the bound of Lemma 1",
        0.5,
        "of the active anchors",
        "below",
        "losing-pull: anchors whose ratio exceeds the lower bound of Lemma 1",
        "Li et al., 2024, Lemma 1 and figure 8; share " + OURS,
    ),
    "pull": Threshold(
        "ratio (R) at the end",
        0.01,
        "",
        "below",
        "losing-pull is not reported below this for a loss that is not one of ours: R at the end; "
        "a loss that stops pulling at a margin loses nothing by it",
        OURS,
    ),
    "mean_cosine": Threshold(
        "mean cosine of different texts",
        0.6,
        "",
        "above",
        "anisotropic-start: mean cosine of different texts",
        "about 0.5 in raw BERT (Li et al., 2024, figure 5); value " + OURS,
    ),
    "spread": Threshold(
        "uniformity at the end (0: one point, -4: even)",
        -1.0,
        "",
        "above",
        "anisotropic-start of a training, in place of negatives-not-hard: uniformity at the end",
        ZOO,
    ),
    "dev_fall": Threshold(
        "best dev score minus the last",
        1.5,
        "points",
        "above",
        "overfitting: best dev score minus the last, of text",
        OURS,
    ),
    "dev_fall_images": Threshold(
        "best dev score minus the last",
        5.0,
        "points",
        "above",
        "overfitting: best kNN accuracy minus the last",
        OURS,
    ),
    "logged_steps": Threshold(
        "logged steps",
        3,
        "",
        "below",
        "not-enough-seen, of a training: logged steps",
        "the course of a training is a first step, a last one, and one between them",
    ),
}


def compared(name: str, number: float) -> Evidence:
    """Return the evidence that a number gives against the threshold of that name."""
    threshold = THRESHOLDS[name]
    return Evidence(name, number, threshold.value, threshold.unit, threshold.side, threshold.label)
