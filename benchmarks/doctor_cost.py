"""What a look of `isotrope.Doctor` costs in a training by sentence-transformers' own trainer.

The doctor looks at every other step, so that a busy machine disturbs both kinds alike. A step is
what passes from the end of one to the end of the next, everything included: data, update, hooks,
the look. Seconds are of this process's CPU. The share is what a look every 10 steps, the default,
adds to training: a tenth of (looked - plain) / plain, of the medians.

    OMP_NUM_THREADS=1 python benchmarks/doctor_cost.py [--steps 20] [--only pairs] [--csv FILE]

all-MiniLM-L6-v2 on noise: no part's time depends on what texts say. ``pairs`` is
``MultipleNegativesRankingLoss`` on 64 pairs of 32 tokens, ``cached`` the same with a gradient cache
of 16 rows, ``columns`` 256 triplets of 16 tokens: 512 columns in 384 dimensions, where the
components come from the fit of a softmax. The CSV keeps the rows of other cases.
"""

import argparse
import platform
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.training_args import (
    SentenceTransformerTrainingArguments,
)
from transformers import TrainerCallback

import isotrope
import ledger
from isotrope.encoders.names import resolve

CASES = {"pairs": (64, 32), "cached": (64, 32), "columns": (256, 16)}
"""Rows of a batch and tokens of a text, by case."""
COLUMNS = ("case", "plain_s", "looked_s", "look_ms", "share_at_10", "steps", "threads", "torch")
WORDS = (
    "river stone cloud engine garden mirror ocean paper rocket silver tiger violet winter yellow"
)
INTERVAL = 10  # the default of Doctor(every=)


class Stopwatch(TrainerCallback):
    """CPU seconds from the end of each step to the end of the next."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._since: float | None = None

    def on_step_end(self, args, state, control, **_) -> None:
        """Note the step that has just ended."""
        now = time.process_time()
        if self._since is not None:
            self.seconds[state.global_step - 1] = now - self._since
        self._since = now


def timed(case: str, steps: int) -> dict[int, float]:
    """Return the CPU seconds of each step but the first two."""
    rng = random.Random(0)
    batch, tokens = CASES[case]
    names = ("anchor", "positive") + ("negative",) * (case == "columns")
    texts = {
        name: [" ".join(rng.choices(WORDS.split(), k=40)) for _ in range(batch)] for name in names
    }
    model = SentenceTransformer(str(resolve("all-MiniLM-L6-v2")), device="cpu")
    model.max_seq_length = tokens
    loss = (
        losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=16)
        if case == "cached"
        else losses.MultipleNegativesRankingLoss(model)
    )
    watch, doctor = Stopwatch(), isotrope.Doctor(every=2, say=None)
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
    return {step: seconds for step, seconds in watch.seconds.items() if step > 1}


def row(case: str, steps: int) -> dict[str, object]:
    """Return what one case costs."""
    seconds = timed(case, steps)
    plain = statistics.median(s for step, s in seconds.items() if step % 2)
    looked = statistics.median(s for step, s in seconds.items() if not step % 2)
    return {
        "case": case,
        "plain_s": f"{plain:.4f}",
        "looked_s": f"{looked:.4f}",
        "look_ms": f"{1000 * (looked - plain):.1f}",
        "share_at_10": f"{(looked - plain) / plain / INTERVAL:.5f}",
        "steps": steps,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def main() -> None:
    """Time, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} thread(s)")
    rows = []
    for case in given.only or CASES:
        rows.append(row(case, given.steps))
        print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    if given.csv:
        done = {str(one["case"]) for one in rows}
        rows += [one for one in ledger.read(given.csv) if one["case"] not in done]
        rows.sort(key=lambda one: list(CASES).index(str(one["case"])))
        ledger.write(given.csv, COLUMNS, rows)


if __name__ == "__main__":
    main()
