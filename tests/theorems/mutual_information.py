"""MIOv1 bounds mutual information (Manna et al. 2023, section 2.2, two steps corrected)."""

from torch import Tensor

from isotrope import softplus
from tests.theorems.bound import Bound


def critic_at_optimum(joint: Tensor) -> Tensor:
    """Return log p(x, y) / (p(x) p(y)), the C that minimises MIOv1 (Manna et al. 2023, eq. 5 to 9).

    That is for a critic free in every entry; a cosine stays within -1..1 and needs a temperature
    to come near. Entries of probability 0 are -inf.

    Args:
        joint: k x l probabilities of positive pairs.

    Raises:
        ValueError: not a matrix of probabilities.
    """
    _check(joint)
    product = _product(joint)
    return (joint / product.where(product > 0, 1.0)).where(product > 0, 1.0).log()


def mutual_information(joint: Tensor) -> Tensor:
    """Return I = sum p(x, y) log p(x, y) / (p(x) p(y)), in nats.

    Args:
        joint: k x l probabilities.

    Raises:
        ValueError: not a matrix of probabilities.
    """
    return _mean(critic_at_optimum(joint), joint)


def miov1_bound(joint: Tensor, critic: Tensor | None = None) -> Bound:
    """Return -I(positives) + E_neg[log ratio] <= MIOv1 (Manna et al. 2023, eq. 10, corrected).

    Positive pairs are drawn from ``joint``, negative ones from the product of its margins. In
    print the second term is the mutual information of the negatives; it is
    -KL(p(x) p(y) || p(x, y)) <= 0, and so no information that training could lower.

    Args:
        joint: k x l probabilities of positive pairs.
        critic: k x l values C; by default those at the optimum.

    Raises:
        ValueError: not a matrix of probabilities, or a critic of another shape.
    """
    best = critic_at_optimum(joint)
    critic = best if critic is None else critic
    if critic.shape != joint.shape:
        raise ValueError(
            f"the critic has one value for each of {tuple(joint.shape)} pairs; found "
            f"{tuple(critic.shape)}"
        )
    positive = _mean(softplus(-critic), joint)
    negative = _mean(softplus(critic), _product(joint))
    left = -_mean(best, joint) + _mean(best, _product(joint))
    return Bound(left, positive + negative)


def _check(joint: Tensor) -> None:
    total = float(joint.sum())
    if joint.ndim != 2 or bool((joint < 0).any()) or not abs(total - 1) < 1e-6:
        raise ValueError(
            "joint must be a matrix of probabilities that sum to 1; found shape "
            f"{tuple(joint.shape)}, sum {total:g}, smallest entry {float(joint.min()):g}"
        )


def _product(joint: Tensor) -> Tensor:
    return joint.sum(dim=1, keepdim=True) * joint.sum(dim=0, keepdim=True)


def _mean(values: Tensor, probabilities: Tensor) -> Tensor:
    """The expectation; what never happens counts nothing, infinite or not."""
    return (probabilities * values.where(probabilities > 0, 0.0)).sum()
