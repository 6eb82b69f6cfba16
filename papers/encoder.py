"""``python -m papers encoder``: raw encoders, made from scratch as masked language models.

The papers on sentence embeddings start from BERT, which was trained to fill in words and never on
pairs of sentences. Such an encoder is made here from Wikipedia and nothing else: the word pieces
are learnt from the text (8,000, a quarter of BERT's, so that filling in costs a quarter, and no
part comes from an encoder that was trained before), word vectors begin as factors of their
co-occurrences (``papers.pretraining``), all other weights are drawn, and the one objective is to
fill in masked pieces, without the next-sentence task, as RoBERTa does it.

It reads the second half of the corpus; what is trained on such an encoder takes the first half. The
folder that is left opens with sentence-transformers and as ``isotrope train --encoder FOLDER``, and
pools by CLS. The record (command, recipe, versions, gates) is kept in the repository, the encoder
is not.
"""

import argparse
import gzip
import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from isotrope.core import InputError, Result, exclusive_lock, provenance
from isotrope.data import Subset, load_sts_file
from isotrope.encoders import SentenceEncoder
from isotrope.evaluation import CachedEncoder, WhitenedEncoder, sts_dev
from isotrope.measures import mean_cosine
from papers import stages
from papers.machinery.data_registry import cache_folder
from papers.pretraining import PretrainingRecipe, initialized, pretrain

RECIPES = {
    "raw-2x128-pmi": PretrainingRecipe(layers=2, width=128, steps=1_000),
    "raw-4x256-pmi": PretrainingRecipe(layers=4, width=256, steps=2_000, learning_rate=1.5e-3),
}

GATES = {"dev": (20.0, 45.0), "mean cosine": (0.7, 0.99)}
"""What a raw encoder is known by: 100 x Spearman on the dev split of STS-B, and the mean cosine of
Wikipedia sentences, both of CLS. Raw BERT is as anisotropic, and no better at STS.

No objective acts on CLS while words are filled in, and its score drifts: what is made is the
encoder at the last checkpoint that passes."""

CORPUS = "corpus/wiki_en_1m.txt.gz"
LINES = (500_000, 1_000_000)  # of the corpus: the second half
REFERENCE = 2_000  # sentences of the first half: mean cosine, statistics of whitening


def make(
    name: str,
    recipe: PretrainingRecipe,
    texts: Sequence[str],
    folder: Path,
    *,
    seed: int,
    dev: Subset,
    reference: Sequence[str],
    limits: Mapping[str, tuple[float, float]] = GATES,
    device: str = "cpu",
    tell: Callable[[str], None] = lambda line: None,
) -> Result:
    """Make an encoder, or resume making it; the folder appears when it is complete."""
    if (folder / "record.json").is_file():
        return Result.load(folder / "record.json")
    part = folder.with_name(f"{folder.name}.part")
    with exclusive_lock(part, f"making {name}"):
        encoder, tokens = initialized(recipe, texts, part, seed, device)
        summary = pretrain(
            recipe,
            encoder,
            tokens,
            part,
            seed=seed,
            measure=lambda trained: measured(CachedEncoder(trained), dev, reference),
            accept=lambda measures: passes_gates(measures, limits),
            tell=tell,
        )
        if not summary["step"]:
            raise InputError(
                f"no checkpoint of {name} passes the gates; {part} has its course, delete it to "
                "begin again with another --seed"
            )
        done = part / "wanted"
        rounded(done)
        metrics = {"step": summary.pop("step"), **gates(done, dev, reference)}
        metrics["cpu_seconds"] = summary.pop("cpu_seconds")
        fingerprint = SentenceEncoder.load(done, device="cpu").fingerprint()
        details = {"recipe": asdict(recipe), "fingerprint": fingerprint, **summary}
        command = ["python", "-m", "papers", "encoder", name, "--seed", str(seed)]
        about = provenance(seed=seed, command=command)
        result = Result("encoder", name, {**metrics}, details, about)
        result.save(done / "record.json")
        done.rename(folder)
    shutil.rmtree(part, ignore_errors=True)
    return result


def rounded(folder: Path) -> None:
    """Round the weights to 11 bits, which halves what a repository stores of them."""
    encoder = SentenceEncoder.load(folder, pooling="cls", device="cpu")
    with torch.no_grad():
        for weight in encoder.model.parameters():
            weight.copy_(weight.half().to(weight.dtype))
    encoder.save(folder)


def gates(folder: Path, dev: Subset, reference: Sequence[str]) -> dict[str, float]:
    """Measure the signs of a raw encoder, also with mean pooling, and whitened."""
    measures: dict[str, float] = {}
    for pooling, prefix in (("cls", ""), ("mean", "mean pooling: ")):
        pooled = CachedEncoder(SentenceEncoder.load(folder, pooling=pooling, device="cpu"))
        all_texts = [*reference, *dev.first, *dev.second]
        measures |= {f"{prefix}{k}": v for k, v in measured(pooled, dev, reference).items()}
        measures[f"{prefix}dev whitened"] = sts_dev(WhitenedEncoder(pooled, reference), dev)
        measures[f"{prefix}dev whitened, transductive"] = sts_dev(
            WhitenedEncoder(pooled, all_texts), dev
        )
    return {name: round(value, 4) for name, value in measures.items()}


def measured(encoder: CachedEncoder, dev: Subset, reference: Sequence[str]) -> dict[str, float]:
    """Return the dev score and the mean cosine of the reference."""
    rows = torch.from_numpy(encoder.encode(reference)).double()
    return {"dev": sts_dev(encoder, dev), "mean cosine": float(mean_cosine(rows))}


def passes_gates(
    measures: Mapping[str, Any], limits: Mapping[str, tuple[float, float]] = GATES
) -> bool:
    """Return whether an encoder is raw by its limits; a missing measurement does not pass."""
    return all(
        name in measures and low <= measures[name] <= high for name, (low, high) in limits.items()
    )


def run(arguments: Sequence[str]) -> int:
    """Make an encoder, keep its record, print its gates."""
    options = _parse(arguments)
    torch.set_num_threads(options.threads)
    corpus, pairs = options.data / CORPUS, options.data / "sts/stsb/dev.tsv"
    for needed in (corpus, pairs):
        if not needed.is_file():
            raise InputError(f"there is no {needed}: --data names the folder that has it")
    name = f"{options.name}-seed{options.seed}"
    result = make(
        options.name,
        RECIPES[options.name],
        corpus_lines(corpus, *LINES),
        options.folder / name,
        seed=options.seed,
        dev=load_sts_file(pairs),
        reference=corpus_lines(corpus, LINES[0] - REFERENCE, LINES[0]),
        tell=stages.say,
    )
    result.save(options.output / f"{name}.json")
    for gate, (low, high) in GATES.items():
        print(f"{gate} {result.metrics[gate]:.2f} (raw: {low:g} to {high:g})")
    print(f"encoder: {options.folder / name}\nrecord: {options.output / name}.json")
    return 0


def corpus_lines(corpus: Path, first: int, last: int) -> list[str]:
    """Return the sentences of a corpus from ``first`` to before ``last``."""
    with gzip.open(corpus, "rt", encoding="utf-8") as lines:
        return [line.strip() for line in itertools.islice(lines, first, last)]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    description = "Make a raw encoder: a BERT from scratch, trained to fill in words alone."
    parser = stages.parser("encoder", description, "encoders")
    folder = cache_folder() / "encoders"
    add = parser.add_argument
    add("name", choices=RECIPES, help="layers x width")
    add("--seed", type=int, default=0, metavar="N", help="of weights, order and masks [0]")
    add("--folder", type=Path, default=folder, metavar="DIR", help="of the weights [%(default)s]")
    add("--threads", type=int, default=1, metavar="N", help="of torch [1]")
    return parser.parse_args(list(arguments))
