"""Checks what the gradient of a plain loss does to anchors, positives and negatives.

The batches are built so that the gradient on the anchors shows the derivative of the loss by each
cosine: anchors are orthogonal, and each positive also has a direction that no other row has. The
part of an anchor's gradient in this direction belongs to this positive alone.
"""

import contextlib
import inspect
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from isotrope.core.errors import InputError
from isotrope.core.rounding import same
from isotrope.paradigm.loss_graph import LossGraph
from isotrope.paradigm.objective_check import Check
from isotrope.training.loss_subject import ROWS, SIZES, Subject, distance

_COSINES, _NEAR = (0.6, 0.3, -0.5), 0.5  # of anchors with their positives and near negatives
_EACH = 4  # dimensions for each pair: anchor and positive of two sets of pairs are independent
_TWICE = 2.0  # below it, near negatives count hardly more than others: softmax of tau > 0.7
# If n pairs join n others (n is 3 to 12), the pull of an anchor is multiplied by 0.5 in a mean over
# rows, and by 1 in a sum. If each row also sums over its negatives (n - 1 or 2n - 1, which become
# 2n - 1 or 4n - 1), it is multiplied by 1.022 to 1.25 in a mean, and by 2.04 to 2.5 in a sum.
_OF_SUM = 0.02  # largest distance from 1 of a sum over rows
_OF_SUMS = 1.6  # smallest factor of a sum over rows and negatives
_SLIGHT = 1e-5  # share of the largest part of a gradient below which a part is rounding
_TINY = 1e-4  # a number below it only prevents a division by 0

_REPELS = "change the sign: the gradient moves anchors away from their positives"
_NO_PULL = "not a fault if the loss only pushes: no anchor is moved towards its positive"
_SUM = (
    "divide by the number of rows, or the learning rate must fall as the batch grows: if as many "
    "other pairs are added, the gradient of a pair becomes {:.2g} times as large (0.5 in a mean)"
)
_EVEN = (
    "divide the cosines by a temperature such as 0.05 if near negatives matter more than others: a "
    "negative with a cosine of 0.5 is pushed only {:.2g} times as much as one with a cosine of 0"
)
_UNUSED = "use {0} in the loss: other {0} change neither its value nor its gradient"
_CONSTANT = (
    "not a fault if this is on purpose: another {} does not change the gradient of the loss on "
    "random embeddings, nor on near and far positives and negatives"
)


def gradient_checks(subject: Subject) -> Iterator[Check]:
    """Yield checks of whether positives attract, and of what the gradient depends on."""
    yield from _inputs(subject)
    yield from _settings(subject)
    yield from _softmax(subject)
    slopes = [_slopes(subject, cosine) for cosine in _COSINES]
    pulls = [-float(slope.diagonal().sum()) for slope in slopes]
    yield _attraction(slopes, pulls)
    yield from _near_negatives(subject, slopes)
    yield from _mean_or_sum(subject, pulls)


def _attraction(slopes: list[Tensor], pulls: list[float]) -> Check:
    """Whether a positive attracts its anchor."""
    outcome: tuple[str, bool | None, str] = ("no pull", None, _NO_PULL)
    if any(bool((slope.diagonal() < 0).any()) for slope in slopes):
        outcome = ("attracts", True, "")
    elif min(pulls) < 0:
        outcome = ("repels", False, _REPELS)
    return Check("the positive attracts", len(slopes), *outcome)


def _near_negatives(subject: Subject, slopes: list[Tensor]) -> Iterator[Check]:
    """Whether near negatives are pushed much more; shown for a softmax, or if they are."""
    times = max(_times(slopes), default=0.0)
    half = max(_times([_slopes(subject, c, near=_NEAR / 2) for c in _COSINES]), default=0.0)
    # a softmax pushes a negative of cosine s exp(s / tau) times as much as one of cosine 0, so half
    # the cosine gives the square root
    is_softmax = half > 1 + _SLIGHT and math.isclose(half**2, times, rel_tol=_SLIGHT)
    if (is_softmax or times >= _TWICE) and _is_of_angles(subject):
        yield _remark("near negatives are pushed more", times, _EVEN if times < _TWICE else "")


def _mean_or_sum(subject: Subject, pulls: list[float]) -> Iterator[Check]:
    """Whether the pull is halved if the batch is doubled; shown if there is a pull."""
    alone = [-float(_slopes(subject, cosine, sets=1).diagonal().sum()) for cosine in _COSINES]
    both = zip(pulls, alone, strict=True)
    ratios = [pull / fewer for pull, fewer in both if abs(fewer) > _SLIGHT * abs(pull)]
    if ratios:
        times = min(ratios)  # of far positives, whose pull in a softmax hardly depends on negatives
        is_sum = abs(times - 1) < _OF_SUM or times > _OF_SUMS
        yield _remark("mean over the batch", times, _SUM if is_sum else "")


def _remark(name: str, times: float, means: str) -> Check:
    """Return a check that passes if there is nothing to remark, and is a dash otherwise."""
    shown = f"{times:.2g} times"
    return Check(name, len(_COSINES), shown, None if means else True, means.format(times))


def _slopes(subject: Subject, cosine: float, *, sets: int = 2, near: float = _NEAR) -> Tensor:
    """Return the derivative of the loss by the cosine of each anchor with each positive, n x n.

    Anchor i has a cosine of ``near`` with positive i + 1, and of 0 with the others. A second set
    of pairs is orthogonal to the first. Anchors without a gradient change places with positives.
    """
    n = min(subject.dimensions // _EACH, ROWS // 2)
    if n < 3:
        raise InputError(f"use --dimensions {3 * _EACH}")
    numbers = torch.Generator().manual_seed(3)
    square = torch.randn(*2 * [subject.dimensions], dtype=torch.float64, generator=numbers)
    rows = torch.linalg.qr(square)[0][: _EACH * n].reshape(2, 2, n, -1)
    anchors, own = rows[:sets].unbind(1)
    length = math.sqrt(1 - cosine**2 - near**2)
    positives = cosine * anchors + near * anchors.roll(1, 1) + length * own
    views = [x.flatten(0, 1) for x in (anchors, positives, rows[1, 1].expand_as(anchors))]
    gradient = subject.by_embeddings(views).gradients[0][:n]
    if not gradient.any():
        gradient = subject.by_embeddings([views[1], views[0], views[2]]).gradients[1][:n]
    slopes: Tensor = gradient @ own[0].T / length
    is_rounding = slopes.abs() <= _SLIGHT * gradient.abs().max()
    return slopes.masked_fill(is_rounding, 0.0)


def _times(slopes: list[Tensor]) -> list[float]:
    """Return the push on near negatives divided by that on others, for each batch with a push."""
    own = torch.eye(len(slopes[0])).bool()
    near = own.roll(1, dims=1)
    far = ~near & ~own
    pushes = [(float(s[near].mean()), float(s[far].mean())) for s in slopes]
    return [push / other if other > 0 else math.inf for push, other in pushes if push > 0]


def _is_of_angles(subject: Subject) -> bool:
    """Whether longer embeddings leave the value as it is; otherwise norms may set a temperature."""
    value, longer = (subject.value([k * x for x in _graded(subject)]) for k in (1, 2))
    return abs(longer - value) <= _SLIGHT * (1 + abs(value))


def _graded(subject: Subject) -> list[Tensor]:
    """Return anchors, positives at graded distances, and negatives twice as far away."""
    encoder, inputs = subject.inputs()
    anchors, *_, noise = (encoder(x).detach() for x in inputs)
    # so that any margin is between positive and negative of some row, but not of all
    noise = noise * torch.logspace(0.3, -1.8, len(noise), dtype=torch.float64)[:, None]
    return [anchors, anchors + noise, anchors - 2 * noise]


def _softmax(subject: Subject) -> Iterator[Check]:
    """Whether a softmax gets wrong scores; shown only if it does."""
    value = subject.called(subject.fresh(), [x.requires_grad_().clone() for x in _graded(subject)])
    if value.grad_fn is not None and (slip := LossGraph(value.grad_fn).slip):
        yield Check("softmax of the scores", 1, "wrong input or dim", passed=False, means=slip)


def _inputs(subject: Subject) -> Iterator[Check]:
    """Whether the loss changes with its positives, and with its negatives."""
    views, numbers = _graded(subject), torch.Generator().manual_seed(4)
    usual, unused = subject.by_embeddings(views), list[str]()
    names = list(subject.parameters)[: subject.views]
    for place, name in enumerate(names[1:], start=1):
        other = torch.randn(views[place].shape, dtype=torch.float64, generator=numbers)
        changed = subject.by_embeddings([*views[:place], other, *views[place + 1 :]])
        unused += [name] if distance(changed, usual) <= _SLIGHT else []
    means = _UNUSED.format(" and ".join(unused)) if unused else ""
    shown = f"not {' and '.join(unused)}" if unused else "changes"
    yield Check("each input changes the loss", len(names) - 1, shown, not unused, means)


def _settings(subject: Subject) -> Iterator[Check]:
    """Whether the gradient changes with each number or choice that the loss has a default for."""
    values = {name: p.default for name, p in subject.parameters.items()}
    if isinstance(subject.loss, nn.Module):
        own = inspect.signature(type(subject.loss)).parameters
        kept = {name: x for name, x in vars(subject.loss).items() if name in own}
        values |= {name: x for name, x in kept.items() if isinstance(x, (bool, float))}  # no sizes
    others = {name: _others(x) for name, x in values.items() if name not in SIZES}
    tried, unused = [name for name, x in others.items() if x], list[str]()
    usual = _gradient(subject)
    for name in tried:
        with contextlib.suppress(Exception):  # a loss that refuses a value reads the setting
            gradients = [_gradient(subject.varied(name, value)) for value in others[name]]
            unused += [name] if all(same(x, usual) for x in gradients) else []
    if tried:
        means = _CONSTANT.format(" or another ".join(unused)) if unused else ""
        shown = f"not {', '.join(unused)}" if unused else "changes"
        passed = None if unused else True
        yield Check("each setting changes the gradient", len(tried), shown, passed, means)


def _others(value: object) -> list[float]:
    """Return other values of a choice or a number; none for other settings and tiny numbers."""
    if isinstance(value, bool):
        return [not value]
    if not isinstance(value, (int, float)) or 0 < abs(value) < _TINY:
        return []
    lower, higher = (0.6 * value, 1.7 * value) if value else (-0.3, 0.3)
    return [lower, higher] if isinstance(value, float) or not value else [value + 1]


def _gradient(subject: Subject) -> Tensor:
    """Return the gradients on random and graded embeddings, and those of :func:`_slopes`."""
    parts = subject.run().gradients + subject.by_embeddings(_graded(subject)).gradients
    with contextlib.suppress(Exception):  # a loss may need more rows
        parts += [_slopes(subject, cosine) for cosine in _COSINES]
    return torch.cat([x.flatten() for x in parts])
