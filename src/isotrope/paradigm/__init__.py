"""Defines, changes and analyses objectives by their gradient: dissipation GD, weight W, ratio R.

To define an objective: ``objective`` has the base class, and ``registry`` finds its subclasses.
``forms`` averages an objective over both directions, or splits it into pull and push. ``assemble``
computes the gradient from the components GD, W and R. ``proof`` tests what a class declares;
``objective_check`` runs these tests and explains the usual errors.

To change an objective: ``compose`` replaces its components by those in ``parts``, and ``surrogate``
makes a loss with the new gradient. ``metric`` has the distances. ``authors_code`` follows the
released code of Li et al. 2024 where it differs from their paper.

To analyse an objective: ``anatomy`` summarises the components of a batch, ``portrait`` evaluates
them at given angles, and ``decompose`` finds the components of any loss. ``graph_reading``
finds the pairs that any loss compares, in its autograd graph: ``graph`` reads nodes, ``similarity``
those that compare embeddings, and ``softmax_targets`` the softmax that follows. ``loss_graph``
chooses the similarities that a loss consists of. ``operands`` turns a similarity into a table of
pairs, and ``compared`` joins the tables of one softmax.

``loss_shares`` divides the loss of a batch among processes.
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
