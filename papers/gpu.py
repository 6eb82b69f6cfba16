"""``python -m papers gpu``: an encoder of BERT-mini's size, and table 3's pairs on it, on a GPU.

Everything decided on text rests on encoders of 2 layers and 128 dimensions. This makes one of
4 layers and 256 (:data:`RECIPE`) from the second half of the Wikipedia text, as ``python -m papers
encoder`` does, but for ten passes instead of a fraction of one, and without gates: its last
checkpoint is taken. From it the four pairs of Li et al. 2024, table 3, and InfoNCE are trained for
2,000 steps with three seeds, by the rates and hyperparameters that were chosen on
``raw-2x128-pmi``: nothing is chosen here. It was written down before any of its trainings. On one
data-centre GPU the encoder is meant to take ten minutes; it has not been run on one yet.
``--tiny`` shows on a CPU that everything runs.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from isotrope.core import InputError
from isotrope.data import load_sts_file
from papers import encoder as raw
from papers import stages
from papers import text_protocol as protocol
from papers.machinery.data_registry import RAW, cache_folder
from papers.machinery.job import PaperJob
from papers.machinery.store import JobStore
from papers.machinery.verdicts import minus, with_interval
from papers.pretraining import PretrainingRecipe
from papers.starts import PAIRS
from papers.text_command import stored
from papers.text_tables import table

NAME, SEED = "raw-4x256-gpu", 1
RECIPE = PretrainingRecipe(
    layers=4, width=256, steps=20_000, batch_size=256, learning_rate=1e-3, warmup=1_000, every=2_000
)
STEPS, SEEDS = 2_000, (1, 2, 3)
LOSSES = (*(name for pair in PAIRS.items() for name in pair), "infonce")

_SMALL = replace(RECIPE, layers=1, width=64, steps=4, batch_size=16, vocabulary=300, every=2)
_LITTLE: Mapping[str, Any] = {"held": [2, 8], "scores": []}


def jobs(chosen: protocol.Find, *, tiny: bool = False) -> dict[str, list[PaperJob]]:
    """Return the trainings by loss, a job for each seed.

    Raises:
        InputError: the rates or hyperparameters of a loss are not known.
    """
    steps, seeds = (4, SEEDS[:1]) if tiny else (STEPS, SEEDS)
    more: dict[str, Any] = {"scores": ["sts"], "ends": ["best"], "mode": "prototyping"}
    more |= {"keep_every": steps // 4, "log_every": steps // 4, **(_LITTLE if tiny else {})}
    trainings = {}
    for name in LOSSES:
        loss = protocol.LOSSES[name]
        at, values = protocol.rate(RAW, loss, chosen), protocol.tuned(RAW, loss, chosen)
        if at is None or values is None:
            raise InputError(f"the settings of {name} are not known: `python -m papers text` first")
        encoder = f"{NAME}-tiny" if tiny else NAME
        trainings[name] = [
            protocol.training(encoder, loss, values, at, steps, seed, more) for seed in seeds
        ]
    return trainings


def run(arguments: Sequence[str]) -> int:
    """Make the encoder, train what is missing, print the gains.

    Raises:
        InputError: data that are not here, or a training that failed.
    """
    options = _parse(arguments)
    name = f"{NAME}-tiny" if options.tiny else NAME
    corpus, (first, last) = options.data / raw.CORPUS, (0, 600) if options.tiny else raw.LINES
    measured_on = (0, 200) if options.tiny else (first - raw.REFERENCE, first)
    recorded = raw.make(
        name,
        _SMALL if options.tiny else RECIPE,
        raw.corpus_lines(corpus, first, last),
        cache_folder() / "encoders" / name,
        seed=SEED,
        dev=load_sts_file(options.data / "sts/stsb/dev.tsv"),
        reference=raw.corpus_lines(corpus, *measured_on),
        limits={},
        device=options.device,
        tell=stages.say,
    )
    recorded.save(options.output / f"{name}.json")
    trainings = jobs(stored(RAW, stages.RESULTS / "text"), tiny=options.tiny)
    store = JobStore(options.output / "cells")
    wanted = sorted((job for of in trainings.values() for job in of), key=lambda job: job.seed)
    stages.train(wanted, store, options.data)
    print(f"{name}: STS-B dev {recorded.metrics['dev']:.2f} before training\n")
    of = {loss: protocol.scores(jobs_, store.find) for loss, jobs_ in trainings.items()}
    rows = [
        [
            original,
            with_interval(minus(of[modified], of[original])),
            with_interval(minus(of["infonce"], of[original])),
        ]
        for modified, original in PAIRS.items()
    ]
    print("\n".join(table(["loss", "modified less original", "InfoNCE less original"], rows)))
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    description = "Make an encoder of BERT-mini's size, and train table 3's pairs on it."
    parser = stages.parser("gpu", description, "gpu")
    add = parser.add_argument
    add("--device", default="auto", help="of the pre-training [%(default)s]")
    add("--tiny", action="store_true", help="a few steps of everything: its numbers mean nothing")
    return parser.parse_args(list(arguments))
