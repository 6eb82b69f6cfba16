"""Explains how the gradient of an objective moves embeddings, and diagnoses runs and models.

- ``simulation`` evaluates an objective at random or given angles, without a model.
- ``metrics`` defines the columns of metrics.csv, ``observe`` measures them on one batch, and
  ``anatomy`` records them during a training, also in a training loop that the user wrote.
- ``curvature`` multiplies vectors by the Hessian of a loss, and computes extreme eigenvalues.
- ``doctor`` diagnoses a run or a model: ``target`` measures it, ``evidence`` stores the
  measurements, ``verdicts`` has the rules, and ``findings`` prints the faults that were found.
"""

from typing import TYPE_CHECKING

from isotrope.core import public

if TYPE_CHECKING:
    from isotrope.diagnostics.curvature import parameter_hessian as parameter_hessian
    from isotrope.diagnostics.simulation.angle_draws import Angles as Angles
    from isotrope.diagnostics.simulation.averages import Landscape as Landscape
    from isotrope.diagnostics.simulation.averages import dissipation as dissipation
    from isotrope.diagnostics.simulation.averages import gradient_norm as gradient_norm
    from isotrope.diagnostics.simulation.averages import hardest_share as hardest_share
    from isotrope.diagnostics.simulation.averages import ratio as ratio
    from isotrope.diagnostics.simulation.figures import FIGURES as FIGURES
    from isotrope.diagnostics.simulation.figures import FigurePanel as FigurePanel
    from isotrope.diagnostics.simulation.figures import figure as figure
    from isotrope.diagnostics.simulation.figures import numbers as numbers

public(__name__)
