"""Objectives and the three components of their gradients: to define, change and analyse them.

To define an objective: ``objective`` is the base class, ``registry`` finds its subclasses,
``forms`` makes from an objective the mean of both directions, or its pull and push, ``assemble``
turns components back into a gradient, ``proof`` tests what a class declares, and
``objective_check`` runs these tests and explains the usual errors.

To change an objective: ``parts`` holds the named components, ``metric`` the distances that they
use. ``compose`` turns components (and a parent objective) into an objective, whose loss is a
``surrogate``. ``authors_code`` follows the released code of Li et al. 2024 where it differs from
their paper.

To analyse an objective: ``anatomy`` summarises a batch, ``portrait`` evaluates the components at
given angles, and ``decompose`` finds the components of any loss. ``similarities`` finds the pairs
that a loss compares in its autograd graph, with ``graph``, ``operands`` and ``compared``.
"""

from typing import TYPE_CHECKING

from isotrope.core import public

if TYPE_CHECKING:
    from isotrope.paradigm.assemble import tangent as tangent
    from isotrope.paradigm.portrait import summary as summary
    from isotrope.paradigm.proof import BATCHES as BATCHES
    from isotrope.paradigm.proof import EXACT as EXACT
    from isotrope.paradigm.proof import batch as batch
    from isotrope.paradigm.proof import double_entry as double_entry
    from isotrope.paradigm.registry import as_settings as as_settings
    from isotrope.paradigm.registry import build as build
    from isotrope.paradigm.registry import find as find
    from isotrope.paradigm.registry import load_plugin as load_plugin
    from isotrope.paradigm.registry import names as names

public(__name__)
