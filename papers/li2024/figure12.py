"""Figure 12, an illustration: the effect of each component on a few points in the plane."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from isotrope import Paradigm
from isotrope.reports import Picture
from papers.li2024.baseline import BASELINE
from papers.li2024.lemma import lemma1
from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.plots.planes import Dots, Plane, planes

Points = NDArray[np.float64]

_PAIRS, _STEPS, _RATE = 5, 100, 0.5
_HARD, _EASY = 0.5, 1.2  # angles of negatives with the anchor
_AROUND = (0.0, 1.0, 1.5, 2.0, 2.4)  # and where they lie around it, the hardest first
_POSITIVE, _NEGATIVE, _ALPHA, _LAMBDA = math.pi / 6, math.pi / 3, 0.5, 0.5
_KINDS = {"without GD": "none", "with GD": f"margin:{BASELINE['margin']:g}"}
_WEIGHTS = {"equal weights": math.inf, "tau = .05": BASELINE["temperature"]}
_RATIOS = (1.2, 2.2)
_ANCHOR = np.zeros(2)


def render(scale: Scale, results: Results) -> Rendered:
    """Compute the three illustrations, the same at every scale."""
    gaps = [f"{_gap(*_trained(part)):.2f}" for part in _KINDS.values()]
    ways = [f"{_along_hardest(tau):.2f}" for tau in _WEIGHTS.values()]
    moves = [f"{_approach(ratio):+.2f}" for ratio in _RATIOS]
    least = float(lemma1(_POSITIVE, _NEGATIVE, _ALPHA, _LAMBDA).lower)
    return Rendered(
        tables=[
            Sheet(
                ["panel", "what", "where", "paper", "ours"],
                [
                    ["a", "gap of the angles, radians", "without GD", "larger", gaps[0]],
                    ["a", "gap of the angles, radians", "with GD", "smaller", gaps[1]],
                    ["b", "cosine of step and hardest's push", "equal weights", "least", ways[0]],
                    ["b", "cosine of step and hardest's push", "tau = .05", "most", ways[1]],
                    ["c", "change of distance", f"r = {_RATIOS[0]:g}", "farther", moves[0]],
                    ["c", "change of distance", f"r = {_RATIOS[1]:g}", "closer", moves[1]],
                ],
                title="what the paper's panels say, and what ours come to",
            )
        ],
        pictures={"figure12": _drawn},
        notes=[
            "an illustration, as in the paper: the points were chosen to show what is meant, and "
            "nothing follows for trained models",
            f"a: {_PAIRS} pairs in two dimensions, trained themselves; drawn are one anchor, its "
            "positive and those of the others. b, c: one step in the anchor's tangent plane; in b "
            f"it is pushed only; in c the circle is what lies as near the positive as the anchor "
            f"did, and Lemma 1 asks for r above {least:.2f}",
        ],
    )


@functools.cache
def _trained(dissipation: str) -> tuple[Points, Points]:
    """Anchors and positives on the circle, trained from a narrow cone."""
    angles = torch.linspace(-0.4, 0.4, _PAIRS, dtype=torch.float64)
    views = [
        torch.stack([a.cos(), a.sin()], dim=1).requires_grad_() for a in (angles, angles + 0.1)
    ]
    objective = Paradigm(
        dissipation=dissipation, weight=f"softmax:{BASELINE['temperature']:g}", ratio=1
    )
    for _ in range(_STEPS):
        moves = torch.autograd.grad(objective(*views), views)
        with torch.no_grad():
            for view, move in zip(views, moves, strict=True):
                view -= _RATE * move
                view /= view.norm(dim=1, keepdim=True)
    anchors, positives = (view.detach().numpy() for view in views)
    return anchors, positives


def _gap(anchors: Points, positives: Points) -> float:
    """Mean angle to the hardest negative less mean angle to the positive."""
    angles = np.arccos(np.clip(anchors @ positives.T, -1, 1))
    others = angles + np.where(np.eye(_PAIRS), np.inf, 0)
    return float((others.min(axis=1) - np.diag(angles)).mean())


def _negatives() -> tuple[Points, Points]:
    """Their places in the tangent plane, the hardest first, and their cosines with the anchor."""
    theta = np.array([_HARD, *[_EASY] * (len(_AROUND) - 1)])
    return np.sin(theta)[:, None] * _turned(np.array(_AROUND)), np.cos(theta)


def _turned(angle: Points) -> Points:
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _pushed(tau: float) -> Points:
    """Where the negatives push the anchor in a step of length .5."""
    places, cosines = _negatives()
    weight = np.exp((cosines - cosines.max()) / tau)
    push = -(weight / weight.sum()) @ places
    return np.asarray(0.5 * push / np.linalg.norm(push))


def _along_hardest(tau: float) -> float:
    step, away = _pushed(tau), -_negatives()[0][0]
    return float(step @ away / np.linalg.norm(step) / np.linalg.norm(away))


def _pair() -> tuple[Points, Points]:
    """Positive and negative in the tangent plane, alpha between them."""
    return math.sin(_POSITIVE) * _turned(np.array(0.0)), math.sin(_NEGATIVE) * _turned(
        np.array(_ALPHA)
    )


def _moved(ratio: float) -> Points:
    positive, negative = _pair()
    return _LAMBDA * (ratio * positive - negative)


def _approach(ratio: float) -> float:
    """Change of the distance to the positive in one step."""
    positive, _ = _pair()
    return float(np.linalg.norm(_moved(ratio) - positive) - np.linalg.norm(positive))


def _drawn() -> Picture:
    panels = []
    for title, part in _KINDS.items():
        anchors, positives = _trained(part)
        dots = [Dots("positive", positives[:1]), Dots("negative", positives[1:])]
        anchor = Dots("anchor", anchors[:1])
        panels.append(Plane(f"a: {title}", [*dots, anchor], circles=[(_ANCHOR, 1.0)]))
    for title, tau in _WEIGHTS.items():
        places, cosines = _negatives()
        strength = np.interp(cosines, np.sort(cosines)[[0, -1]], (0.4, 1.0)).tolist()
        panels.append(_stepped(f"b: {title}", _pushed(tau), [Dots("negative", places, strength)]))
    positive, negative = _pair()
    pair = [Dots("positive", positive[None]), Dots("negative", negative[None])]
    rim = [(positive, float(np.linalg.norm(positive)))]
    panels += [_stepped(f"c: r = {ratio:g}", _moved(ratio), pair, rim) for ratio in _RATIOS]
    return planes(panels)


def _stepped(
    title: str, end: Points, others: list[Dots], circles: Sequence[tuple[Points, float]] = ()
) -> Plane:
    dots = [Dots("anchor", _ANCHOR[None]), Dots("anchor after the step", end[None])]
    return Plane(title, [*others, *dots], [(_ANCHOR, end)], circles)
