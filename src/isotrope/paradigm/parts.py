"""Collects the named parts of a gradient: dissipations, weights and ratios.

An author writes ``parts.Hardest(metric="dot")(pairs)`` in ``components``, and
``objective.modify(weight=parts.Softmax(temperature=0.05))`` exchanges a part.
"""

from isotrope.paradigm.dissipation import Always, Dissipation, Fraction, Margin
from isotrope.paradigm.ratio import ArcRatio, MetricRatio, Ratio, Static
from isotrope.paradigm.weight import Energy, Hardest, Power, Softmax, Uniform, Weight

__all__ = [
    "Always",
    "ArcRatio",
    "Dissipation",
    "Energy",
    "Fraction",
    "Hardest",
    "Margin",
    "MetricRatio",
    "Power",
    "Ratio",
    "Softmax",
    "Static",
    "Uniform",
    "Weight",
]
