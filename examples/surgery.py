"""Barlow Twins becomes an objective for sentences, one gradient component at a time.

    python examples/surgery.py

Every gradient here is GD_i * (sum_j W_ij x_j - pull_i h'_i). Li et al. 2024 exchanges its three
components in turn (section 4.2, table 5); this script does the same with ``.modify`` on embeddings
of a few topics, prints what each edit changes, and ends where ``ModifiedBarlowTwins`` begins.
"""

import torch
from torch import Tensor

from isotrope import Objective, Views, parts
from isotrope.objectives import BarlowTwins, ModifiedBarlowTwins
from isotrope.paradigm.anatomy import anatomy
from isotrope.paradigm.assemble import assemble, tangent

SENTENCES, DIMENSIONS, TOPICS = 64, 48, 8


def embeddings() -> tuple[Tensor, Tensor]:
    """Return two views of sentences about a few topics, as a fresh encoder gives them: in a cone.

    SENTENCES x DIMENSIONS each, float64. The later a sentence, the less its views agree.
    """
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    topic = normal(TOPICS, DIMENSIONS)[torch.arange(SENTENCES) % TOPICS]
    meaning = 0.7 * normal(1, DIMENSIONS) + 0.5 * topic + normal(SENTENCES, DIMENSIONS)
    noise = torch.linspace(0.1, 0.9, SENTENCES, dtype=torch.float64)[:, None]
    return tuple(meaning + noise * normal(SENTENCES, DIMENSIONS) for _ in range(2))  # type: ignore[return-value]


def gradients(objective: Objective, anchors: Tensor, positives: Tensor) -> tuple[Tensor, ...]:
    """Return what the loss sends back into both views."""
    leaves = [anchors.clone().requires_grad_(), positives.clone().requires_grad_()]
    return torch.autograd.grad(objective(*leaves), leaves)


def show(title: str, objective: Objective, anchors: Tensor, positives: Tensor) -> None:
    """Print the three components of a batch and where a step of gradient descent takes it."""
    views = Views(anchors, positives)
    pairs, terms = objective.compare(views), objective.terms(anchors, positives)
    numbers = anatomy(objective, views)
    h, own, active = pairs.views.anchors, pairs.views.own, terms.dissipation > 0

    # one anchor's weights, its nearest neighbours first
    within = pairs.similarity("within").masked_fill(~pairs.negative("within"), -torch.inf)
    order = within[0].argsort(descending=True)
    row = terms.weight[0, order] / terms.weight[0].abs().sum()

    step = -tangent(assemble(terms, pairs.views), h)
    nearest = pairs.columns("within")[within.argmax(dim=1)]
    to_positive = torch.cosine_similarity(step, tangent(own, h))[active]
    from_nearest = torch.cosine_similarity(step, -tangent(nearest, h))[active]

    # Barlow Twins pulls each coordinate by itself: its ratio is a matrix, of which this is the mean
    pull = terms.pull if terms.pull.ndim == 1 else terms.pull.mean(dim=1)
    ratio = (pull / terms.mass)[active]

    print(f"\n{title}")
    print(
        f"  GD    mean {numbers['dissipation']:.2f}: {int(active.sum())} of {len(h)} anchors move"
    )
    print(f"  W     {numbers['hardest_share']:.2f} of an anchor's weight on its nearest negative")
    print(f"        first anchor, nearest first: {' '.join(f'{w:.2f}' for w in row[:8])} ...")
    print(f"  R     {ratio.min():.2f} to {ratio.max():.2f} over the anchors")
    print(f"  step  cosine {to_positive.mean():+.2f} with the way to the positive,")
    print(f"        {from_nearest.mean():+.2f} with the way from the nearest negative")


def main() -> None:
    """Exchange the components in turn."""
    anchors, positives = embeddings()
    margin = parts.Margin(margin=0.3)
    weight = parts.Softmax(0.05, by="positives", normaliser="batch")

    original = BarlowTwins()
    show("Barlow Twins, nu = 30", original, anchors, positives)

    dissipating = original.modify(dissipation=margin)
    show("+ GD: an anchor rests once its positive leads by 0.3", dissipating, anchors, positives)

    # the paper sets nu = 1 before it exchanges the weight; the pull that is left is 2/n
    weighted = BarlowTwins(weight=1.0).modify(dissipation=margin, weight=weight)
    show("+ W: a softmax at 0.05, so that near negatives count", weighted, anchors, positives)

    modified = weighted.modify(ratio=1.5)
    show("+ R: 1.5, whatever the batch", modified, anchors, positives)

    reached = gradients(modified, anchors, positives)
    named = gradients(ModifiedBarlowTwins(), anchors, positives)
    assert all(torch.equal(a, b) for a, b in zip(reached, named, strict=True))
    print("\nThe last gradient is that of ModifiedBarlowTwins(), to the last bit.")


if __name__ == "__main__":
    main()
