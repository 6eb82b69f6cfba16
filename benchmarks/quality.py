"""The model that `isotrope train` makes beside that of sentence-transformers' own trainer.

all-MiniLM-L6-v2 is trained on pairs from the docstrings of Python's library, numpy and torch, and
searches other functions by the first sentence of their docstrings (MRR@10, out of 100). Loss
(in-batch negatives at temperature 0.05), batches of 64, steps, rate, schedule, clipping, dropout
and length are the same; each trainer draws its own order. The arms: ours as it comes, with a head
that is not saved; ours without one; theirs. The last step is scored: no dev set chooses anything.

    python benchmarks/quality.py [--seeds 0 1 2] [--csv FILE] [--show]

A training takes one to two minutes of one core. Rows that are in the CSV are kept.
"""

import argparse
import random
import statistics
import tempfile
from pathlib import Path
from typing import Literal

import sentence_transformers
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.training_args import (
    SentenceTransformerTrainingArguments,
)

import isotrope
import ledger
from corpus import STANDARD_LIBRARY, collect, split
from isotrope.core.run_folder import RunFolder
from isotrope.data.text.retrieval_sets import RetrievalSet, from_pairs
from isotrope.encoders.names import resolve
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.retrieval import retrieval_evaluation

CSV = Path(__file__).resolve().parents[1] / "docs" / "results" / "quality.csv"
COLUMNS = ("trainer", "seed", "score", "start", "steps", "pairs", "torch", "sentence_transformers")
ENCODER, PACKAGES = "all-MiniLM-L6-v2", (STANDARD_LIBRARY, "numpy", "torch")
HELD_OUT, TRAINED, STEPS, BATCH, TOKENS, RATE = 1000, 4000, 20, 64, 32, 5e-5
ARMS = ("isotrope", "isotrope, no head", "sentence-transformers")
Pairs = list[tuple[str, str]]


def data(seed: int) -> tuple[Pairs, RetrievalSet]:
    """Return the pairs to train on and the functions to search; the seed draws both."""
    train, held_out = split(collect(PACKAGES), HELD_OUT, seed)
    random.Random(seed).shuffle(train)
    pairs = [(item.query, item.target) for item in train[:TRAINED]]
    return pairs, from_pairs((item.query, item.target) for item in held_out)


def ours(pairs: Pairs, head: Literal["mlp", "none"], seed: int, folder: str) -> SentenceEncoder:
    """Train with ``isotrope.fit``."""
    outcome = isotrope.fit(
        pairs,
        output=f"{folder}/run",
        encoder=ENCODER,
        recipe="papers",
        head=head,
        dropout=0.1,
        batch_size=BATCH,
        max_steps=STEPS,
        max_length=TOKENS,
        learning_rate=RATE,
        seed=seed,
        device="cpu",
        progress=False,
    )
    return SentenceEncoder.load(RunFolder(outcome.output).model, device="cpu")


def theirs(pairs: Pairs, seed: int, folder: str) -> SentenceEncoder:
    """Train with SentenceTransformerTrainer."""
    model = SentenceTransformer(str(resolve(ENCODER)), device="cpu")
    reads, model.max_seq_length = model.max_seq_length, TOKENS
    anchors, positives = map(list, zip(*pairs, strict=True))
    arguments = SentenceTransformerTrainingArguments(
        f"{folder}/steps",
        per_device_train_batch_size=BATCH,
        max_steps=STEPS,
        learning_rate=RATE,
        max_grad_norm=1.0,
        lr_scheduler_type="linear",
        warmup_steps=0,
        seed=seed,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"anchor": anchors, "positive": positives}),
        loss=MultipleNegativesRankingLoss(model, scale=20.0),
    ).train()
    model.max_seq_length = reads
    model.save(f"{folder}/model")
    return SentenceEncoder.load(f"{folder}/model", device="cpu")


def trained(arm: str, pairs: Pairs, seed: int, folder: str) -> SentenceEncoder:
    """Return the encoder that an arm ends with."""
    if arm == "sentence-transformers":
        return theirs(pairs, seed, folder)
    return ours(pairs, "none" if arm.endswith("no head") else "mlp", seed, folder)


def summary(rows: list[dict[str, str]]) -> list[str]:
    """Return for each arm its mean gain, and the difference from theirs, seed by seed."""
    gains = {(r["trainer"], r["seed"]): float(r["score"]) - float(r["start"]) for r in rows}
    theirs_by_seed = {s: gain for (arm, s), gain in gains.items() if arm == ARMS[-1]}
    lines = []
    for arm in ARMS:
        own = [gains[arm, seed] for seed in theirs_by_seed if (arm, seed) in gains]
        apart = [gains[arm, s] - gain for s, gain in theirs_by_seed.items() if (arm, s) in gains]
        if own:
            spread = f" (deviation {statistics.stdev(apart):.2f})" if len(apart) > 1 else ""
            gain, difference = statistics.fmean(own), statistics.fmean(apart)
            lines.append(
                f"{arm}: {gain:+.2f}, {difference:+.2f}{spread} from theirs, {len(own)} seeds"
            )
    return lines


def main() -> None:
    """Measure what is missing, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--csv", type=Path, default=CSV)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = ledger.read(options.csv)
    there = {(row["trainer"], row["seed"]) for row in rows}
    for seed in () if options.show else options.seeds:
        if all((arm, str(seed)) in there for arm in ARMS):
            continue
        pairs, held_out = data(seed)
        start = retrieval_evaluation(SentenceEncoder.load(ENCODER, device="cpu"), held_out).value
        for arm in ARMS:
            if (arm, str(seed)) in there:
                continue
            with tempfile.TemporaryDirectory() as folder:
                encoder = trained(arm, pairs, seed, folder)
                score = retrieval_evaluation(encoder, held_out).value
            versions = torch.__version__, sentence_transformers.__version__
            found = (
                arm,
                seed,
                f"{score:.2f}",
                f"{start:.2f}",
                STEPS,
                len(pairs),
                *versions,
            )
            rows.append(dict(zip(COLUMNS, map(str, found), strict=True)))
            ledger.write(options.csv, COLUMNS, rows)
            print(arm, seed, f"{start:.2f} -> {score:.2f}", flush=True)
    print(*summary(rows), sep="\n")


if __name__ == "__main__":
    main()
