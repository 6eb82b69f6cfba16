"""The base class of objectives, the three components of their gradient, and tools for both.

To define an objective: ``objective`` is the base class, ``registry`` finds its subclasses,
``forms`` has the mean of both directions and the two parts of one direction, ``assemble`` turns
components back into a gradient, ``proof`` checks every class against its declarations, and
``objective_check`` runs these checks and explains the usual errors.

To edit an objective: ``parts`` holds the named components, in the distances of ``metric``;
``compose`` turns components (and a parent objective) into an objective, whose loss is a
``surrogate``; and ``authors_code`` has the formulas of the published code of Li et al. 2024 where
they differ from the paper.

To analyse an objective: ``anatomy`` summarises a batch, ``portrait`` shows a scene of known angles,
and ``decompose`` finds the components of any loss.
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
