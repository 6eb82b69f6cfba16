"""Floor 4: what an objective does to an anchor, looked at without training anything.

``angles`` lets an objective work on angles alone, without embeddings; ``draws`` draws them.
``simulate`` averages components over drawn angles, ``surfaces`` evaluates them at given ones; both
return the ``landscape`` of a quantity over the two angles. ``convergence`` trains embeddings
themselves; ``lemma_share`` and ``cosine_checks`` hold claims of papers 000 and 003 against batches.
"""

from isotrope.diagnostics.draws import Angles
from isotrope.diagnostics.landscape import Landscape
from isotrope.diagnostics.simulate import dissipation, hardest_share
from isotrope.diagnostics.surfaces import gradient_norm, ratio

__all__ = ["Angles", "Landscape", "dissipation", "gradient_norm", "hardest_share", "ratio"]
