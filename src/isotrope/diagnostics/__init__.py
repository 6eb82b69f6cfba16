"""Explains what an objective's gradient does to embeddings, and diagnoses runs and models.

- ``simulation`` needs no model: an objective is evaluated at random or given angles (``averages``,
  ``surfaces``).
- ``anatomy`` records a training in any loop; ``observe`` measures one batch, ``catch`` records
  embeddings and their gradients.
- ``curvature`` multiplies with the Hessian of a loss, and finds its extreme eigenvalues.
- ``doctor`` diagnoses a run or a model: ``examine`` reads it into the record of ``evidence``,
  ``rules`` holds one rule for each verdict, ``thresholds`` every number that decides, and
  ``findings`` the findings and their text.
"""

from isotrope.diagnostics.simulation.angle_draws import Angles
from isotrope.diagnostics.simulation.averages import dissipation, hardest_share
from isotrope.diagnostics.simulation.landscape import Landscape
from isotrope.diagnostics.simulation.surfaces import gradient_norm, ratio

__all__ = ["Angles", "Landscape", "dissipation", "gradient_norm", "hardest_share", "ratio"]
