"""Floor 4: what an objective does to embeddings, before, in and after training, and what is wrong.

- ``simulation`` needs no model: an objective works on drawn or given angles (``averages``,
  ``surfaces``), or moves free embeddings (``convergence``).
- ``anatomy`` follows a training in anyone's loop; ``observe`` measures one batch, ``catch`` gets
  hold of embeddings and their gradients. ``latent`` follows pairs of images in the plane.
- ``model_statistics`` measures the embeddings of a model, ``curvature`` its loss.
- ``doctor`` diagnoses a run or a model: ``examine`` reads it into the record of ``evidence``,
  ``rules`` hold one rule for each verdict, ``thresholds`` every number they decide by, and
  ``findings`` are what it says.
"""

from isotrope.diagnostics.simulation.angle_draws import Angles
from isotrope.diagnostics.simulation.averages import dissipation, hardest_share
from isotrope.diagnostics.simulation.landscape import Landscape
from isotrope.diagnostics.simulation.surfaces import gradient_norm, ratio

__all__ = ["Angles", "Landscape", "dissipation", "gradient_norm", "hardest_share", "ratio"]
