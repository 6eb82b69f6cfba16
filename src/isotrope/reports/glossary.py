"""Explains each number of a report in a sentence."""

from collections.abc import Set as AbstractSet

__all__ = ["explained"]

# key of the picture, name, symbol, meaning
_GLOSSARY = (
    ("dev", "Dev score", "", "The score on held-out data during training; step 0 is the model "
     "before training, and the step with the highest score is the model that was saved."),
    ("knn", "kNN accuracy", "", "The share of test images whose class their nearest training "
     "images name, by the features that are kept; step 0 is the encoder before training, and the "
     "last step is the model that was saved: choosing a step by the test images would flatter it."),
    ("held_out_contrastive", "Held-out InfoNCE", "", "InfoNCE at temperature 0.05 on up to 512 "
     "records that are never trained on, and on as many that are, with dropout; both fall as long "
     "as what is learnt holds for other text, too (Nie et al. 2023, figure 1)."),
    ("dissipation", "Gradient dissipation", "GD", "The factor, averaged over anchors, that scales "
     "an anchor's whole gradient: near 0 the anchor already tells its positive from its negatives, "
     "and teaches no more. An anchor below 0.01 is dead. Where no anchor has negatives, in a batch "
     "of one row or under a loss of pairs, there is no dissipation, and nothing is drawn."),
    ("hardest_share", "Weight", "W", "How the push is shared among an anchor's negatives; its "
     "share on the hardest negative is 1 if that one alone is pushed away, 1/(N \u2212 1) if all "
     "N \u2212 1 are alike."),
    ("ratio", "Ratio", "R", "How strongly an anchor is pulled to its positive for each unit of "
     "push from its negatives; above 1 the pull dominates."),
    ("above_bound", "Bound of the ratio", "", "The ratio above which a small step brings an "
     "anchor nearer to its positive although it is pushed by its hardest negative (Li et al. 2024, "
     "lemma 1); shown is the share of anchors above it, among those that still learn."),
    ("parts", "Pull and push", "", "The two parts of the gradient at a normalised anchor, towards "
     "its positive and away from its negatives, in the plane where it can move (Nie et al. 2023)."),
    ("false_negatives", "False negatives", "", "The share of anchors with a negative that looks "
     "like a positive: as near as their own, and much nearer than the average negative. Copies of "
     "a text in one batch are such, and so are images of one class."),
    ("norm", "Embedding norm", "", "Mean length of embeddings before they are normalised; "
     "gradients shrink in proportion to it, so a growing norm slows training down."),
    ("embedding_gradient", "Gradient on the embedding", "", "Mean length of the gradient that "
     "reaches an embedding before it is normalised: that at the unit sphere, divided by the norm "
     "(Draganov et al. 2024)."),
    ("gradient_norm", "Gradient norm", "", "Length of the gradient of all parameters at a step; "
     "spikes are what gradient clipping is for."),
    ("angles", "Angles", "", "Between an anchor and its positive, and between an anchor and its "
     "negatives, in radians: their means with one standard deviation (Li et al. 2024, figure 9)."),
    ("distance_gap", "Distance gap", "d", "How much farther away an anchor's negatives are than "
     "its positive, on average; below 0 they are nearer (Nie et al. 2023, figure 3)."),
    ("opposite_halves", "Opposite halves", "", "The share of pairs whose two views lie more than a "
     "right angle apart; the further apart they are, the weaker the cosine pulls them together."),
    ("trajectory", "Alignment", "", "Mean squared distance between the two views of one text or "
     "image on the unit sphere: 0 if they coincide, 2 if they are unrelated; lower is closer."),
    ("trajectory", "Uniformity", "", "Logarithm of the mean of exp(\u22122 d\u00b2) over pairs of "
     "texts or images: 0 if all share one point, about \u22124 if they spread evenly; lower is "
     "wider."),
    ("effective_rank", "Effective rank", "", "Over how many directions the embeddings spread: 1 on "
     "a line, the number of dimensions in a round cloud."),
    ("std", "Deviation per dimension", "", "Standard deviation of a coordinate of the normalised "
     "embeddings, the mean over coordinates: 0 in a point, 1/\u221ad if they spread evenly over d "
     "dimensions."),
)  # fmt: skip


def explained(keys: AbstractSet[str]) -> list[tuple[str, str, str]]:
    """Return name, symbol and meaning of the numbers in these pictures."""
    return [(name, symbol, text) for key, name, symbol, text in _GLOSSARY if key in keys]
