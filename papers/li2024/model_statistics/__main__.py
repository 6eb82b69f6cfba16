"""Measures your models as Li et al. 2024 do: before training, after it, or both.

    python -m papers.li2024.model_statistics held-out.txt all-MiniLM-L6-v2 [runs/mine]

The texts, one a line, should not have been trained on. They go through each encoder in batches of
128 with dropout on, twice; its masks make the two views (appendix A.2). Printed are the angles with
positives and negatives (figure 9, appendix A.1), the hardest negative's share of an exponential
weight by temperature (figure 7), and the dynamic ratios over the anchors that each objective still
moves (figure 8b).
"""

import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from isotrope.core.views import Views
from isotrope.data.text.corpora import read
from isotrope.encoders.sentence import SentenceEncoder
from papers.li2024.model_statistics.angle_statistics import angle_statistics
from papers.li2024.model_statistics.dynamic_ratios import dynamic_ratios
from papers.li2024.model_statistics.hardest_negative import hardest_share
from papers.li2024.model_statistics.held_out import held_out

BATCH, BATCHES, TOKENS = 128, 8, 32


def show(batches: Sequence[Views]) -> None:
    """Print the statistics of one encoder."""
    for name, seen in angle_statistics(batches).items():
        where = "in" if seen.in_range else "outside"
        print(
            f"  {name} angles  mean {seen.mean:.3f} ({where} the range)  std {seen.std:.3f} "
            f"({seen.spread:.2f} of the assumed)  skew {seen.skew:+.2f}  kurtosis "
            f"{seen.kurtosis:+.2f}  KS {seen.ks:.3f}"
        )
    for kind in ("weight", "projection"):
        statistics = hardest_share(batches, kind=kind)
        print(f"  hardest {kind}  " + "  ".join(f"{t:g}: {x:.3f}" for t, x in statistics.items()))
    for name, ratio in dynamic_ratios(batches).items():
        if ratio.mean is not None:
            print(
                f"  ratio of {name}  {ratio.mean:.3g} +- {ratio.std:.2g}, above 1 in "
                f"{ratio.above_one:.0%} of {ratio.active} active anchors of {ratio.count}"
            )


def main(file: str, *encoders: str, batch: int = BATCH) -> None:
    """Print the statistics of each encoder on the first texts of a file."""
    texts = [record.texts[0] for record in islice(read([Path(file)]), batch * BATCHES)]
    for name in encoders:
        print(name)
        encoder = SentenceEncoder.load(name, device="cpu")
        show(held_out(encoder, texts, batch_size=batch, max_length=TOKENS))


if __name__ == "__main__":
    main(*sys.argv[1:])
