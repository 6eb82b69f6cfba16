"""Functions that measure embeddings, such as alignment, uniformity and effective rank."""

from typing import TYPE_CHECKING

from isotrope.core import public

if TYPE_CHECKING:
    from isotrope.measures.alignment import alignment as alignment
    from isotrope.measures.dimension_std import dimension_std as dimension_std
    from isotrope.measures.effective_rank import effective_rank as effective_rank
    from isotrope.measures.mean_cosine import mean_cosine as mean_cosine
    from isotrope.measures.norms import mean_norm as mean_norm
    from isotrope.measures.opposite_halves import opposite_halves as opposite_halves
    from isotrope.measures.uniformity import uniformity as uniformity

public(__name__)
