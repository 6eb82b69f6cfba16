"""Floor 4: what an objective does to embeddings, without training, in training, and after it.

Without: ``angles`` lets an objective work on angles alone, ``draws`` draws them; ``simulate``
averages components over drawn angles, ``surfaces`` evaluates them at given ones; both return the
``landscape`` of a quantity over the two angles. ``convergence`` and ``latent`` train embeddings
themselves, ``cosine_checks`` draws directions.

In training: ``observe`` measures a batch, ``anatomy`` does so in anyone's loop.

Of a model: ``held_out`` embeds batches as paper 000 looks at them, for ``angle_statistics``,
``hardest_negative``, ``dynamic_ratios`` and ``lemma_share``; ``curvature`` is of its loss. The
``doctor`` says what is wrong, by its ``rules`` and ``thresholds``, from ``evidence``.
"""

from isotrope.diagnostics.draws import Angles
from isotrope.diagnostics.landscape import Landscape
from isotrope.diagnostics.simulate import dissipation, hardest_share
from isotrope.diagnostics.surfaces import gradient_norm, ratio

__all__ = ["Angles", "Landscape", "dissipation", "gradient_norm", "hardest_share", "ratio"]
