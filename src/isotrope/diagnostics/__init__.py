"""Explains what an objective's gradient does to embeddings, and diagnoses runs and models.

- ``simulation`` needs no model: an objective is evaluated at random or given angles (``averages``).
- ``metrics`` is the table of the numbers of a log; ``observe`` measures one batch, ``anatomy``
  records a training in any loop.
- ``curvature`` multiplies with the Hessian of a loss, and finds its extreme eigenvalues.
- ``doctor`` diagnoses a run or a model: ``examine`` reads it into the record of ``evidence``,
  ``verdicts`` has one record for each verdict, and ``findings`` the findings and their text.
"""

from typing import TYPE_CHECKING

from isotrope.core import public

if TYPE_CHECKING:
    from isotrope.diagnostics.curvature import parameter_hessian as parameter_hessian
    from isotrope.diagnostics.simulation.angle_draws import Angles as Angles
    from isotrope.diagnostics.simulation.averages import dissipation as dissipation
    from isotrope.diagnostics.simulation.averages import gradient_norm as gradient_norm
    from isotrope.diagnostics.simulation.averages import hardest_share as hardest_share
    from isotrope.diagnostics.simulation.averages import ratio as ratio
    from isotrope.diagnostics.simulation.figures import FIGURES as FIGURES
    from isotrope.diagnostics.simulation.figures import FigurePanel as FigurePanel
    from isotrope.diagnostics.simulation.figures import figure as figure
    from isotrope.diagnostics.simulation.figures import numbers as numbers
    from isotrope.diagnostics.simulation.landscape import Landscape as Landscape

public(__name__)
