"""Finds positions for labels in a picture so that none overlap; geometry only.

A box is (left, bottom, right, top); all lengths share one unit.
"""

from collections.abc import Iterator, Sequence

import numpy as np

__all__ = ["Box", "apart", "beside", "room"]

Box = tuple[float, float, float, float]

_GAP = 0.6  # between a point and its label, in heights of the label
_ACROSS = 13  # places tried in each row


def apart(
    wanted: Sequence[float], heights: Sequence[float], low: float, high: float
) -> list[float]:
    """Push labels of one column apart, moving each as little as possible (least squares).

    Args:
        wanted: n, where the middles should be, in any order.
        heights: n.
        low: no label reaches below it, unless there are too many.
        high: no label reaches above it.

    Returns:
        the n middles, in the order given.
    """
    stacks: list[tuple[list[int], float]] = []  # from below: labels that touch, and their bottom
    for i in sorted(range(len(wanted)), key=lambda i: wanted[i]):
        stack, bottom = [i], wanted[i] - heights[i] / 2
        while stacks and stacks[-1][1] + sum(heights[j] for j in stacks[-1][0]) > bottom:
            below, start = stacks.pop()
            size = sum(heights[j] for j in below)
            shared = len(below) * start + len(stack) * (bottom - size)
            stack, bottom = below + stack, shared / (len(below) + len(stack))
        stacks.append((stack, bottom))
    sizes = [sum(heights[i] for i in stack) for stack, _ in stacks]
    bottoms = [bottom for _, bottom in stacks]
    for k, size in enumerate(sizes):
        bottoms[k] = max(bottoms[k], low)
        low = bottoms[k] + size
    for k in reversed(range(len(stacks))):
        bottoms[k] = min(bottoms[k], high - sizes[k])
        high = bottoms[k]
    middles = [0.0] * len(wanted)
    for (stack, _), bottom in zip(stacks, bottoms, strict=True):
        for i in stack:
            middles[i] = bottom + heights[i] / 2
            bottom += heights[i]
    return middles


def room(sizes: Sequence[tuple[float, float]], frame: Box) -> bool:
    """Return whether labels of these widths and heights certainly find places in the frame."""
    wide = max((width for width, _ in sizes), default=0.0)
    high = max((height for _, height in sizes), default=0.0)
    return wide <= frame[2] - frame[0] and len(sizes) * high <= frame[3] - frame[1]


def beside(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    dots: Sequence[Box],
) -> list[Box]:
    """Place a label beside each point, or as near as there is room.

    Args:
        points: n.
        sizes: n widths and heights, for which there is ``room``.
        frame: no label reaches beyond it.
        dots: what a label should rather not cover.

    Returns:
        n boxes that do not overlap.
    """
    # labels in common rows take one row each at most, so in the second pass all find a place
    boxes = _beside(points, sizes, frame, dots, touching=True)
    boxes = boxes or _beside(points, sizes, frame, dots, touching=False)
    assert boxes is not None, "there was no room"
    return boxes


def _beside(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    dots: Sequence[Box],
    *,
    touching: bool,
) -> list[Box] | None:
    high = max((height for _, height in sizes), default=0.0)
    placed: list[Box] = []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        corners = list(_rows(frame, width, high))
        if touching:
            corners = [*_around(x, y, width, height), *corners]
        boxes = [(left, low, left + width, low + height) for left, low in corners]
        free = [box for box in boxes if _inside(box, frame) and not _hits(box, placed)]
        if not free:
            return None
        gap = _GAP * height
        placed.append(
            min(free, key=lambda box: (_hits(box, dots), round(abs(_distance(box, x, y) - gap), 6)))
        )
    return placed


def _around(x: float, y: float, width: float, height: float) -> Iterator[tuple[float, float]]:
    """Right, left, above, below, and the corners between."""
    gap = _GAP * height
    right, left, middle = x + gap, x - gap - width, x - width / 2
    level, above, below = y - height / 2, y + gap, y - gap - height
    yield from ((right, level), (left, level), (middle, above), (middle, below))
    yield from ((right, above), (right, below), (left, above), (left, below))


def _rows(frame: Box, width: float, high: float) -> Iterator[tuple[float, float]]:
    for row in range(int((frame[3] - frame[1]) / high + 1e-6)):
        for left in np.linspace(frame[0], frame[2] - width, _ACROSS):
            yield float(left), frame[1] + row * high


def _inside(box: Box, frame: Box) -> bool:
    slack = 1e-6 * (frame[3] - frame[1])
    return (
        box[0] >= frame[0] - slack
        and box[1] >= frame[1] - slack
        and box[2] <= frame[2] + slack
        and box[3] <= frame[3] + slack
    )


def _hits(box: Box, others: Sequence[Box]) -> int:
    """Count the others that a box overlaps; touching is not overlapping."""
    slack = 1e-6 * (box[3] - box[1])
    return sum(
        box[0] < other[2] - slack
        and other[0] < box[2] - slack
        and box[1] < other[3] - slack
        and other[1] < box[3] - slack
        for other in others
    )


def _distance(box: Box, x: float, y: float) -> float:
    nearest = (min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3]))
    return float(np.hypot(nearest[0] - x, nearest[1] - y))
