"""Is it worth masking false negatives, and mining hard ones, as `isotrope audit` finds them?

1. false: an encoder is trained with InfoNCE on rows of which several belong together, with the same
   batches and steps each time.
   - planted: all-MiniLM-L6-v2 on pairs from docstrings. The rest of each of 128 of them is cut in
     three; the parts go with the first sentence turned by no, one or two words. Scored by MRR@10 on
     other docstrings.
   - SICK: a raw encoder on the pairs of the training set that people scored 4 and more of 5. Scored
     by the Spearman correlation with every seventh score of the test set.
   The arms: `left` (only rows that share a text are masked, as in every training), `known` (the
   planted groups), `grouped` and `cleaned` (the files of `isotrope audit`), and GISTEmbedLoss of
   sentence-transformers: with its defaults but for the temperature, with the negatives of InfoNCE
   alone, and with these and a relative margin of 0.05.
2. hard: a raw encoder on docstrings with one hard negative each: none, a random one, `--mine 1` of
   the audit, and `mine_hard_negatives` of sentence-transformers with its defaults and with a
   relative margin of 0.05. Rows for which a miner finds none keep a random one, so that all arms
   see the same rows.

The audit, GIST's guide and both miners see the same embeddings, those of all-MiniLM-L6-v2.

    python benchmarks/negatives.py [--only WORD] [--data DIR] [--raw DIR] [--csv FILE] [--show]

A training takes half a minute of one core. Rows that are in the CSV are kept: delete one to measure
it again. `--show` prints the means over the seeds of what is there.
"""

import argparse
import functools
import json
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sentence_transformers
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import GISTEmbedLoss
from sentence_transformers.util import mine_hard_negatives
from torch import Tensor, nn

import isotrope
import ledger
from corpus import STANDARD_LIBRARY, collect, fields
from isotrope.adapters.sentence_transformers import ObjectiveLoss
from isotrope.data.text.batches import Batches, joined_groups
from isotrope.data.text.repeats import hash64, near_identical
from isotrope.encoders.sentence import SentenceEncoder

ROOT = Path(__file__).resolve().parents[1]
CSV = ROOT / "docs" / "results" / "negatives.csv"
COLUMNS = (
    *("part", "data", "seed", "arm", "score", "start", "rows", "changed", "steps", "batch"),
    *("seconds", "torch", "sentence_transformers"),
)
SEEDS, BATCH = (0, 1), 128
GUIDE, TOKENS, TEMPERATURE, MARGIN = "all-MiniLM-L6-v2", 24, 0.05, 0.05
SPLIT, PARTS, LONG = 128, 3, 45  # docstrings that are cut, into how many, words of one
RAW = "a raw encoder, such as the folder that `python -m papers encoder raw-2x128-pmi` writes"
Row = tuple[str, ...]


@dataclass(frozen=True)
class Arm:
    """What an encoder is trained on.

    Attributes:
        rows: anchor, positive and perhaps a hard negative.
        groups: equal for rows that are not pushed apart.
        changed: rows that were masked, left out or given a mined negative.
        gist: settings of GISTEmbedLoss; none for InfoNCE with the groups.
    """

    rows: Sequence[Row]
    groups: np.ndarray
    changed: int
    gist: dict[str, Any] | None = field(default=None)


@functools.cache
def guiding(texts: Sequence[str]) -> np.ndarray:
    """Return the guide's embeddings of texts."""
    return SentenceEncoder.load(GUIDE, device="cpu").encode(texts, max_length=32)


@functools.cache
def audited(rows: Sequence[Row], seed: int) -> Any:
    """Return the audit of rows with the guide."""
    return isotrope.audit([*rows], encoder=GUIDE, batch_size=BATCH, dev=None, seed=seed, mine=1)


class Guide(nn.Module):
    """The guide's embeddings of known texts, by the token ids that the trained encoder reads."""

    max_seq_length = 512

    def __init__(self, model: SentenceTransformer, texts: Sequence[str]) -> None:
        super().__init__()
        self.tokenizer = model.tokenizer
        rows = guiding((*texts,))
        ids = [model.preprocess([text])["input_ids"][0].tolist() for text in texts]
        self.known = {tuple(i): torch.from_numpy(row) for i, row in zip(ids, rows, strict=True)}

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Look the rows up."""
        ids, mask = features["input_ids"], features["attention_mask"].bool()
        keys = [tuple(row[own].tolist()) for row, own in zip(ids, mask, strict=True)]
        return {**features, "sentence_embedding": torch.stack([self.known[key] for key in keys])}


def same_texts(rows: Sequence[Row]) -> np.ndarray:
    """Return the groups that training makes by itself."""
    marks = [[hash64(near_identical(text)) for text in row[:2]] for row in rows]
    return joined_groups(np.array(marks, np.uint64))


def joined(*groups: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return groups that are connected by any of these."""
    marks = [[hash64(f"{i}:{g}".encode()) for g in each] for i, each in enumerate(groups)]
    return joined_groups(np.array(marks, np.uint64).T)


def masked(groups: np.ndarray) -> int:
    """Return how many rows have another in their group."""
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return int((sizes[place] > 1).sum())


def planted(seed: int) -> tuple[list[Row], list[int], list[Row]]:
    """Return rows, the groups that were planted, and what is held out."""
    items = collect((STANDARD_LIBRARY, "numpy"))
    random.Random(seed).shuffle(items)
    long = [item for item in items if len(item.target.split()) >= LONG][:SPLIT]
    names = {item.name for item in long}
    rows: list[Row] = []
    for item in long:
        words, query = item.target.split(), item.query.split()
        size = len(words) // PARTS
        for part in range(PARTS):
            turned = query[part:] + query[:part]
            rows.append((" ".join(turned), " ".join(words[part * size : (part + 1) * size])))
    others = [(i.query, i.target) for i in items if i.name not in names][:200]
    return rows, [i // PARTS for i in range(len(rows))], others


def sick(data: Path, seed: int) -> tuple[list[Row], list[Row]]:
    """Return rows, and what is held out."""
    folder = data / "sts" / "sickr"
    rows: list[Row] = [(a, b) for score, a, b in fields(folder / "train.tsv") if float(score) >= 4]
    random.Random(seed).shuffle(rows)
    return rows, [(a, b, score) for score, a, b in fields(folder / "test.tsv")[::7]]


def false_arms(
    rows: list[Row], known: Sequence[int] | None, seed: int
) -> dict[str, Callable[[], Arm]]:
    """Return what makes each arm on false negatives."""
    texts = same_texts(rows)

    def grouped() -> Arm:
        groups = joined(texts, audited((*rows,), seed).groups)
        return Arm(rows, groups, masked(groups) - masked(texts))

    def cleaned() -> Arm:
        lines = audited((*rows,), seed).files()["cleaned.jsonl"].decode().splitlines()
        kept: list[Row] = [(row["anchor"], row["positive"]) for row in map(json.loads, lines)]
        return Arm(kept, same_texts(kept), len(rows) - len(kept))

    plain = {"contrast_anchors": False, "contrast_positives": False}
    gist = {
        "gist": {},
        "gist, one direction": plain,
        "gist, relative margin": {**plain, "margin_strategy": "relative", "margin": MARGIN},
    }
    truth = texts if known is None else joined(texts, known)
    told = {"known": lambda: Arm(rows, truth, masked(truth) - masked(texts))}
    return {
        "left": lambda: Arm(rows, texts, 0),
        **(told if known is not None else {}),
        "grouped": grouped,
        "cleaned": cleaned,
        **{name: (lambda own=own: Arm(rows, texts, 0, own)) for name, own in gist.items()},
    }


def hard_arms(rows: list[Row], seed: int) -> dict[str, Callable[[], Arm]]:
    """Return what makes each arm on hard negatives."""
    texts, draw = same_texts(rows), random.Random(seed)
    drawn = [rows[(i + draw.randrange(1, len(rows))) % len(rows)][1] for i in range(len(rows))]

    def given(found: dict[str, str]) -> Arm:
        third = [found.get(row[0], other) for row, other in zip(rows, drawn, strict=True)]
        triples = [(*row, negative) for row, negative in zip(rows, third, strict=True)]
        return Arm(triples, texts, sum(row[0] in found for row in rows))

    def mined() -> Arm:
        found = audited((*rows,), seed).mined.rows.tolist()
        return given({rows[i][0]: rows[j][1] for i, j in found})

    def theirs(**settings: Any) -> Arm:
        from datasets import Dataset

        columns = {"anchor": [a for a, _ in rows], "positive": [b for _, b in rows]}
        model = SentenceEncoder.load(GUIDE, device="cpu").model
        model.max_seq_length = 32
        with_third = mine_hard_negatives(
            Dataset.from_dict(columns), model, num_negatives=1, verbose=False, **settings
        )
        return given({row["anchor"]: row["negative"] for row in with_third})

    return {
        "none": lambda: Arm(rows, texts, 0),
        "random": lambda: given({}),
        "audit": mined,
        "mine_hard_negatives": theirs,
        "mine_hard_negatives, relative margin": lambda: theirs(relative_margin=MARGIN),
    }


@dataclass(frozen=True)
class Job:
    """One data set.

    Attributes:
        arms: what makes each, by name.
        test: what is held out.
        encoder: to begin with.
        steps: of BATCH rows.
        rate: peak learning rate.
    """

    arms: Mapping[str, Callable[[], Arm]]
    test: Sequence[Row]
    encoder: str
    steps: int = 40
    rate: float = 3e-3

    def loaded(self) -> SentenceTransformer:
        """Return the encoder before training."""
        model = SentenceEncoder.load(self.encoder, device="cpu").model
        model.max_seq_length = TOKENS
        return model


def trained(job: Job, arm: Arm, seed: int) -> SentenceTransformer:
    """Return the encoder after a training on an arm, in batches that the seed draws."""
    torch.manual_seed(seed)
    model, steps = job.loaded(), job.steps
    if arm.gist is None:
        loss: nn.Module = ObjectiveLoss(model, "infonce", temperature=TEMPERATURE, groups=True)
    else:
        guide = Guide(model, sorted({text for row in arm.rows for text in row}))
        loss = GISTEmbedLoss(model, guide, temperature=TEMPERATURE, **arm.gist)
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 4, 1 - step / steps)
    )
    batches, model = Batches(range(len(arm.rows)), BATCH, seed), model.train()
    groups = np.unique(arm.groups, return_inverse=True)[1]
    for step in range(steps):
        taken = batches.at(step)
        columns = zip(*(arm.rows[i] for i in taken), strict=True)
        value = loss([model.preprocess(list(c)) for c in columns], torch.from_numpy(groups[taken]))
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def score(model: SentenceTransformer, test: Sequence[Row]) -> float:
    """Return MRR@10 of pairs, or Spearman's correlation with the third column, out of 100."""
    left, right = (
        model.encode([row[i] for row in test], normalize_embeddings=True, convert_to_tensor=True)
        for i in (0, 1)
    )
    if len(test[0]) == 3:
        found = (left * right).sum(1)
        return 100 * float(spearmanr(found.cpu(), [float(row[2]) for row in test]).statistic)
    similar = left @ right.T
    rank = (similar > similar.diagonal()[:, None]).sum(1) + 1
    return 100 * float(torch.where(rank <= 10, 1 / rank, 0.0).mean())


def jobs(options: argparse.Namespace, seed: int) -> dict[tuple[str, str], Job]:
    """Return what is measured, by part and data."""
    pairs = [(i.query, i.target) for i in collect((STANDARD_LIBRARY, "numpy"))]
    random.Random(0).shuffle(pairs)
    rest = random.Random(seed).sample(pairs[400:], 1_200)
    rows, known, test = planted(seed)
    raw = str(options.raw)
    found = {
        ("hard", "docstrings"): Job(hard_arms(rest, seed), pairs[:400], raw),
        ("false", "planted"): Job(false_arms(rows, known, seed), test, GUIDE, steps=9, rate=1e-4),
    }
    if (options.data / "sts").is_dir():
        rows, test = sick(options.data, seed)
        found["false", "SICK"] = Job(false_arms(rows, None, seed), test, raw)
    return found


def means(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return a line for each arm, with its gain over the first of its data, seed by seed."""
    lines = []
    for part, data in dict.fromkeys((row["part"], row["data"]) for row in rows):
        own = [row for row in rows if (row["part"], row["data"]) == (part, data)]
        scores = {(row["arm"], row["seed"]): float(row["score"]) for row in own}
        first = own[0]["arm"]
        for arm in dict.fromkeys(row["arm"] for row in own):
            seeds = [s for a, s in scores if a == arm and (first, s) in scores]
            gains = [scores[arm, s] - scores[first, s] for s in seeds]
            spread = f" ± {statistics.stdev(gains):.2f}" if len(gains) > 1 else ""
            mean = statistics.mean(scores[arm, s] for s in seeds)
            changed = statistics.mean(float(r["changed"]) for r in own if r["arm"] == arm)
            lines.append(
                f"{part}, {data}, {arm}: {mean:.2f}, gain {statistics.mean(gains):+.2f}{spread} "
                f"({len(seeds)} seeds; {changed:.0f} of {own[0]['rows']} rows changed)"
            )
    return lines


def main() -> None:
    """Measure what is not in the CSV."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--raw", type=Path, default=Path("raw"), help=RAW)
    parser.add_argument("--csv", type=Path, default=CSV)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = ledger.read(options.csv)
    for seed in () if options.show else SEEDS:
        for (part, data), job in jobs(options, seed).items():
            for name, make in job.arms.items():
                key = (part, data, str(seed), name)
                known = {tuple(row[c] for c in COLUMNS[:4]) for row in rows}
                if options.only in f"{part} {data} {name}" and key not in known:
                    began = time.process_time()
                    arm = make()
                    start = score(job.loaded(), job.test)
                    value = score(trained(job, arm, seed), job.test)
                    row = (
                        *(*key, f"{value:.2f}", f"{start:.2f}", len(arm.rows), arm.changed),
                        *(job.steps, BATCH, round(time.process_time() - began)),
                        *(torch.__version__, sentence_transformers.__version__),
                    )
                    rows.append(dict(zip(COLUMNS, map(str, row), strict=True)))
                    print(", ".join(rows[-1].values()), flush=True)
                    ledger.write(options.csv, COLUMNS, rows)
    print("\n".join(means(rows)))


if __name__ == "__main__":
    main()
