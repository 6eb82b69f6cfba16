"""What a page of a verdict says first: what it means, what to do, when to ignore it.

The rules (isotrope.diagnostics.verdicts) propose one change by the settings of a run; this is for a
reader who wants to know what else may help, and when the verdict does not matter.
"""

from dataclasses import dataclass

__all__ = ["ADVICE", "Advice"]


@dataclass(frozen=True)
class Advice:
    """The first sections of a page.

    Attributes:
        means: what is wrong, in a sentence or two without a formula.
        steps: what to do, the likeliest first.
        ignore: when the verdict can be ignored.
        example: where it is met, for verdicts that no training of the benchmark shows.
    """

    means: str
    steps: tuple[str, ...]
    ignore: str
    example: str = ""


ADVICE = {
    "no-negatives": Advice(
        "No anchor of a batch has a negative, so a contrastive loss is 0 and teaches nothing. A "
        "loss of 0 does not mean that anything has been learnt.",
        (
            "Use a batch of more than one text: `--batch-size 64`.",
            "If your batches are built by groups (labels, documents), put several groups into "
            "each batch: texts of one group are not negatives of each other.",
        ),
        "Your loss is meant to have no in-batch negatives, such as a regression onto scores.",
        "A loop that passes one pair at a time to a contrastive loss, or a sampler that fills each "
        "batch with one class.",
    ),
    "dead-views": Advice(
        "The two views of a text are exactly the same vector. The positive is at distance 0 before "
        "training begins, so it cannot teach anything.",
        (
            "Switch dropout on: `--dropout 0.1`.",
            "In your own loop, call `model.train()` and encode each text twice.",
            "Better, train on pairs of different texts.",
        ),
        "Never: such a training has nothing to learn from its positives.",
    ),
    "diverging": Advice(
        "Steps that are too long destroy what the encoder knew. The loss does not return below its "
        "start, all embeddings come together, they grow many times as long, or numbers become NaN.",
        (
            "Lower the learning rate tenfold: `--learning-rate 3e-6` instead of 3e-5.",
            "Keep gradient clipping on (`--clip`).",
            "If there are NaNs in half precision, try `--precision 32` or `bf16`.",
            "With a triplet loss of cosines, check the margin as well: its default of 5 in "
            "sentence-transformers is for longer embeddings.",
        ),
        "The loss returns below its start later in a longer run, and the held-out score rises.",
    ),
    "collapsed": Advice(
        "All inputs get nearly the same embedding, so that no search can tell them apart.",
        (
            "If the encoder was collapsed before the first step, start from another one.",
            "On images, lower the weight decay: `--weight-decay 5e-4`.",
            "If nothing in the loss pushes embeddings apart, use one that does: `--objective "
            "infonce`, or for images `--method byol`.",
            "With a margin loss and an encoder from scratch, begin with `infonce`.",
            "Otherwise lower the learning rate tenfold.",
        ),
        "Never: a collapsed model is of no use.",
    ),
    "dimensional-collapse": Advice(
        "The embeddings differ, but only along a few directions. Most of their coordinates carry "
        "no information.",
        (
            "If the start was already like this, use another encoder.",
            "On images, lower the weight decay (`--weight-decay 5e-4`), or use `--method vicreg`.",
            "With VICReg, do not set the weight of the covariances to 0.",
            "On text, use `--objective infonce`.",
        ),
        "Your data have only a few kinds of input, such as ten classes of near-copies.",
    ),
    "unrelated-positives": Advice(
        "Before training, a positive is no closer to its anchor than any other text. Real pairs "
        "are closer; the columns or lines of the file seem to be mixed up.",
        (
            "Look at a few lines of the file: does each second column belong to its first?",
            "Name the right columns: `--columns question,answer`.",
            "If both are right, check that the encoder knows the language of your texts.",
        ),
        "The pairs belong together by a convention that an encoder cannot know, such as a text and "
        "its identifier, or the encoder starts from random weights.",
    ),
    "false-negatives": Advice(
        "Many texts have a near-copy in the data, or a query has several positives in one batch. "
        "The copy, or the other positive, counts as a negative, so training pushes apart what "
        "means the same.",
        (
            "Remove near-copies: normalise what only numbers them, then run `sort -u`.",
            "In your own loop, pass `groups=`, so that texts of one group are not pushed apart.",
            "Use smaller batches, which contain fewer copies.",
        ),
        "Near-copies do mean different things in your data, such as part numbers.",
    ),
    "only-pulled": Advice(
        "Every pair has the same label, so the loss pulls all of them together and pushes none "
        "apart. It is smallest where all texts have one embedding, and training goes there.",
        (
            "Use a loss whose negatives are the other rows of the batch: "
            "`MultipleNegativesRankingLoss` in sentence-transformers, `--objective infonce` here.",
            "Or add pairs that do not belong together, with a label of 0.",
        ),
        "Never, if the loss compares nothing but the two texts of a pair.",
        "`CosineSimilarityLoss` on pairs that all have the score 1: random texts soon have "
        "a cosine near 1, too.",
    ),
    "norms-too-large": Advice(
        "The embeddings are so long that a step hardly turns them. The gradient of a cosine is "
        "divided by the length of the embedding, and every step makes it longer.",
        (
            "On text, use `--head mlp`, whose tanh bounds the length.",
            "On images, use weight decay (`--weight-decay 5e-4`).",
            "From scratch at a small learning rate, start with shorter embeddings: `--cut 3`.",
        ),
        "The held-out score still rises at the end. This can happen in small image trainings "
        "without weight decay: the verdict then warns of longer ones.",
    ),
    "negatives-not-hard": Advice(
        "Every negative is pushed with the same force. The temperature is so high that the softmax "
        "cannot tell near negatives from far ones.",
        (
            "Lower the temperature: `--objective.temperature 0.05` for text, 0.1 for images.",
            "In sentence-transformers, raise `scale` to 20.",
        ),
        "You push evenly on purpose, as for a uniform distribution on the sphere.",
    ),
    "never-dissipating": Advice(
        "Every anchor is pulled and pushed in full until the last step, even when its positive is "
        "already far closer than all negatives. Such losses tend to overfit sentences.",
        (
            "Let the gradient stop at a margin: `--objective.dissipation margin:0.3`, or the "
            "`modified...` form of the loss.",
            "Use `--objective infonce`, whose gradient fades by itself.",
            "If a margin was set, lower it: no batch can reach one that large. In "
            "sentence-transformers, `TripletLoss(model, triplet_margin=0.3)` for cosines and for "
            "normalised embeddings, instead of 5.",
        ),
        "The held-out score rises to the end, or the encoder is trained from scratch on a large "
        "amount of data.",
    ),
    "temperature-too-low": Advice(
        "From the first step most anchors have no gradient, and the others spend all of theirs on "
        "one negative. The temperature is so low that being ahead by a hair counts as done.",
        (
            "Raise the temperature: `--objective.temperature 0.05`; in sentence-transformers, "
            "`scale=20`.",
            "Where scores are not cosines, but sums over tokens or dot products, for instance, "
            "begin with a temperature of 1 (`scale=1`).",
        ),
        "The held-out score rises.",
        "A `scale` of 20, meant for cosines, with a sum of similarities over tokens; or a "
        "temperature of 0.005 for an encoder that is already trained.",
    ),
    "nothing-left-to-learn": Advice(
        "Before the first update, the positives of most anchors were already much closer than all "
        "negatives, and no gain was measured. The encoder already knows these data.",
        (
            "Add hard negatives, as a third column of the file.",
            "Train on other data that are closer to what you will search.",
            "Use larger batches (`--batch-size 256 --micro-batch 64`): they hold harder negatives.",
        ),
        "You want to know whether the model is good enough as it is: then this is the answer.",
        "all-MiniLM-L6-v2 on paraphrases that it already tells apart, such as those of STS-B.",
    ),
    "dissipated-early": Advice(
        "Soon after the start hardly any anchor still has a gradient, and the held-out score has "
        "not risen. More steps will change nothing.",
        (
            "Raise the temperature (`--objective.temperature 0.1`), or the margin.",
            "Use larger batches: `--batch-size 256 --micro-batch 64`.",
            "Add hard negatives, as a third column of the file.",
        ),
        "You stopped the training for other reasons, and its score is good enough.",
        "Easy pairs at a low temperature: after a few steps every positive is far ahead.",
    ),
    "losing-pull": Advice(
        "The positive pulls too weakly against the push of the negatives: a small step takes most "
        "anchors away from their positives, and the angle to them does not fall.",
        (
            "Pull more strongly: `--objective.ratio 1.5`.",
            "Use an objective with a ratio of 1 or more.",
        ),
        "The held-out score rises all the same. Where both similarities fall although the pull is "
        "strong enough, the verdict is `spreading`, which is healthy.",
        "An objective whose ratio was set below 1, as in a study of what it does.",
    ),
    "anisotropic-start": Advice(
        "Different texts have nearly the same direction to begin with, as in a language model that "
        "was never trained to compare texts. Cosines say little until that changes.",
        (
            "Train for a short while: `isotrope train sentences.txt --objective infonce`.",
            "Or start from an encoder that was trained on pairs, such as all-MiniLM-L6-v2.",
        ),
        "You diagnosed a raw language model that you are about to train.",
        "`isotrope diagnose` on a raw BERT: the mean cosine of unrelated sentences is about 0.5.",
    ),
    "overfitting": Advice(
        "The score on held-out data fell from its best while training went on. The best checkpoint "
        "was saved, so nothing is lost.",
        (
            "Stop at the best step: `--max-steps N`.",
            "If the score never rose, lower the learning rate by a factor of three.",
            "Train on more, or more varied, data.",
        ),
        "The held-out set is so small that the fall is within its noise: compare it with the "
        "interval that the run prints.",
        "Barlow Twins on sentences: in the example of [Read the numbers](../guide/anatomy.md) its "
        "score turns after step 10.",
    ),
    "spreading": Advice(
        "Nothing is wrong. The similarity of positives falls and that of negatives falls further, "
        "because the embeddings, which began near each other, spread out.",
        (
            "Continue training. What counts is the held-out score, and that positives stay ahead.",
            "If the held-out score falls, look for another cause; this is not it.",
        ),
        "Always: the training is healthy, and this word is printed after `healthy`.",
        "The first steps of fine-tuning a language model, whose embeddings all point the same way; "
        "or an encoder that was trained at a lower temperature than yours, which kept them close.",
    ),
    "not-enough-seen": Advice(
        "Nothing was found, but the training logged fewer than three steps, which is too little to "
        "call it healthy.",
        ("Log more often: `--log-every 1`.", "Train for longer, then diagnose again."),
        "Always: it is not a verdict on the training.",
        "A run of eight steps that logs every ten.",
    ),
}
