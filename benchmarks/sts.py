"""Seconds of the seven STS tasks beside SentEval's own way of making batches.

Both use the same modules in the same process, and differ in what they hand to them. SentEval's
batcher, as SimCSE has it, takes 128 pairs after another in the order of the file, the first
sentences as one batch, the second as another, pads each to its longest, and encodes a sentence as
often as it occurs. Ours encodes each sentence once, the longest first. The pairs are the same (the
test splits, and the dev splits of STS-B and SICK-R; SentEval would also encode the training splits)
and so are the numbers, which is checked. Reading the files is not timed; correlations are.

Rounds alternate, so that a busy machine disturbs both alike; besides the seconds there are those of
the processor, which other programs disturb less.

    python benchmarks/sts.py [--sts DIR] [--rounds 3] [--threads 2] [--csv FILE]
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import transformers

import ledger
from isotrope.data.text.sts_sets import Subset, load_sts
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation import CachedEncoder, score_task

HERE = Path(__file__).parent
SETS = HERE.parents[1] / "shared" / "data" / "sts"
BATCH = 128

Sets = Mapping[str, Sequence[Subset]]


def ours(encoder: SentenceEncoder, sets: Sets) -> dict[str, float]:
    """Score as ``isotrope.evaluate`` does."""
    memory = CachedEncoder(encoder, batch_size=BATCH)
    results = (score_task(memory, task, subsets) for task, subsets in sets.items())
    return {task: score for result in results for task, score in result.metrics.items()}


def theirs(encoder: SentenceEncoder, sets: Sets) -> dict[str, float]:
    """Score as SentEval does."""
    from scipy.stats import spearmanr

    scores = {}
    for task, subsets in sets.items():
        cosines, gold = [], []
        for subset in subsets:
            predicted = []
            for i in range(0, len(subset), BATCH):
                first, second = subset.first[i : i + BATCH], subset.second[i : i + BATCH]
                predicted.append(
                    torch.cosine_similarity(batch(encoder, first), batch(encoder, second))
                )
            if subset.split == "test":
                cosines.append(torch.cat(predicted).numpy())
                gold.append(subset.scores)
        rho = spearmanr(np.concatenate(cosines), np.concatenate(gold)).statistic
        scores[task] = float(f"{100 * rho:.2f}")
    return scores


@torch.inference_mode()
def batch(encoder: SentenceEncoder, sentences: Sequence[str]) -> torch.Tensor:
    """Embed one batch, padded to its longest sentence."""
    features = encoder.tokenizer(
        list(sentences),
        padding=True,
        truncation=True,
        max_length=encoder.max_length,
        return_token_type_ids=False,
        return_tensors="pt",
    )
    return encoder(**features).float().cpu()


def timed(
    run: Callable[[SentenceEncoder, Sets], dict[str, float]], encoder: SentenceEncoder, sets: Sets
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the scores, and the seconds they took."""
    clocks = (time.perf_counter, time.process_time)
    before = [clock() for clock in clocks]
    scores = run(encoder, sets)
    seconds, cpu = (clock() - start for clock, start in zip(clocks, before, strict=True))
    return scores, {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2)}


def main() -> None:
    """Alternate the two and print the ratio of their medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sts", type=Path, default=SETS)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--csv", type=Path, default=HERE / "sts.csv")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sets = load_sts(options.sts)
    encoder = SentenceEncoder.load(options.encoder, device="cpu")
    batch(encoder, ["a sentence"])  # the first call of a library is slower

    rows: list[dict[str, object]] = []
    for number in range(options.rounds):
        for name, run in (("SentEval's batcher", theirs), ("isotrope", ours)):
            scores, seconds = timed(run, encoder, sets)
            machine = f"{platform.machine()}, {os.cpu_count()} cores"
            rows.append(
                {
                    "by": name,
                    "round": number,
                    **seconds,
                    **scores,
                    "encoder": options.encoder,
                    "threads": options.threads,
                    "machine": machine,
                    "torch": torch.__version__,
                    "transformers": transformers.__version__,
                }
            )
            print(f"{name}: {seconds} {scores}", flush=True)
            ledger.write(options.csv, list(rows[0]), rows)
    report(rows, sets)


def report(rows: Sequence[Mapping[str, object]], sets: Sets) -> None:
    """Print how much less time ours takes, and whether the numbers are the same."""
    for column in ("seconds", "cpu_seconds"):
        theirs_, ours_ = (
            statistics.median(float(str(row[column])) for row in rows if row["by"] == name)
            for name in ("SentEval's batcher", "isotrope")
        )
        print(f"{column}: {theirs_:.1f} and {ours_:.1f}, {theirs_ / ours_:.2f} times")
    apart = [task for task in sets if len({row[task] for row in rows}) > 1]
    print(f"numbers that differ: {', '.join(apart) or 'none'}")


if __name__ == "__main__":
    main()
