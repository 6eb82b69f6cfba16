"""What a look of `isotrope.Doctor` costs in a training by sentence-transformers' own trainer.

benchmarks/looks.py says how. A step has everything: data, update, hooks, the look.

    OMP_NUM_THREADS=1 python benchmarks/doctor_cost.py [--steps 20] [--only pairs] [--csv FILE]

all-MiniLM-L6-v2 on noise: no part's time depends on what texts say. ``pairs`` is
``MultipleNegativesRankingLoss`` on 64 pairs of 32 tokens, ``cached`` the same with a gradient cache
of 16 rows, ``columns`` 256 triplets of 16 tokens: 512 columns in 384 dimensions, where the
components come from the fit of a softmax. The CSV keeps the rows of other cases.
"""

import random
import tempfile

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.training_args import (
    SentenceTransformerTrainingArguments,
)

import isotrope
import looks
from isotrope.encoders.names import resolve

CASES = {"pairs": (64, 32), "cached": (64, 32), "columns": (256, 16)}
"""Rows of a batch and tokens of a text, by case."""


def timed(case: str, steps: int) -> tuple[looks.Stopwatch, int]:
    """Train, and return the times of the steps."""
    rng = random.Random(0)
    batch, tokens = CASES[case]
    names = ("anchor", "positive") + ("negative",) * (case == "columns")
    texts = {name: looks.texts(batch, rng) for name in names}
    model = SentenceTransformer(str(resolve("all-MiniLM-L6-v2")), device="cpu")
    model.max_seq_length = tokens
    loss = (
        losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=16)
        if case == "cached"
        else losses.MultipleNegativesRankingLoss(model)
    )
    watch, doctor = looks.Stopwatch(), isotrope.Doctor(every=2, say=None)
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            per_device_train_batch_size=batch,
            max_steps=steps,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_steps=10 * steps,
        )
        SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict(texts),
            loss=loss,
            callbacks=[doctor, watch],
        ).train()
    if doctor.off or doctor.rows[-1]["temperature"] is None:
        raise SystemExit(f"{case}: the doctor has seen nothing")
    return watch, steps


if __name__ == "__main__":
    looks.main(__doc__, list(CASES), timed)
