"""The picture of quantities over epochs."""

import numpy as np

from isotrope.reports.epochs import Course, courses


def drawn(height: float) -> bytes:
    up = Course([0, 1, 2], [1.0, 10.0, height])
    panels = {"accuracy": {"a": up, "b": up}, "norm": {"a": up}}
    return courses(panels, logarithmic=["norm"]).svg


def test_the_same_numbers_give_the_same_bytes_and_others_do_not() -> None:
    once = drawn(100.0)
    assert drawn(100.0) == once
    assert drawn(50.0) != once
    assert once.count(b'<g id="axes_') == 2


def test_a_line_for_each_run() -> None:
    """Colours in the file, beyond those of one run less."""
    course = Course([0, 1], [0.0, 1.0])
    one = courses({"x": {"a": course}}).svg
    two = courses({"x": {"a": course, "b": Course([0, 1], np.array([1.0, 0.0]))}}).svg
    assert two.count(b"clip-path") > one.count(b"clip-path")
