"""Throughput and peak memory of ``isotrope train`` beside sentence-transformers' own trainer.

Both train the same weights on the same batches in the same order: the sentences of each batch,
their number, the maximal length, the steps, the objective (InfoNCE at temperature .05, dropout
views), the optimiser (AdamW, linear decay, clip 1.0) and the precision are the same. Each runs in
a fresh process; the processes alternate, so that a busy machine disturbs both alike. Seconds are
those of the training loop as each side reports them, without imports or saving; ours tokenises
before the loop, theirs in it; peak memory is the process's largest resident set.

    python benchmarks/throughput.py [--text FILE] [--batch 32 64 128 256] [--length 128]
        [--precision 32 bf16] [--steps 12] [--rounds 3] [--device cpu] [--csv FILE]

On a GPU, peak memory is what torch allocates there, and a few hundred steps are needed.

Every combination of batch and precision is measured, and a setting that is in the CSV is measured
anew. The target is 1.15 times their sentences a second, and never below 1.05. Without ``--text``:
the first sentences of the docstrings installed here (short texts of many lengths, where padding
costs most), and Wikipedia sentences (most near the maximal length, where there is least to gain)
if ``../shared/data`` is there.
"""

import argparse
import gzip
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import ledger

HERE = Path(__file__).parent
WIKIPEDIA = HERE.parents[1] / "shared" / "data" / "corpus" / "wiki_en_1m.txt.gz"
TARGET = 1.15  # times their sentences a second
SETTING = ("text", "batch_size", "max_length", "precision", "device")
COLUMNS = (
    "text",
    "trainer",
    "round",
    "sentences_per_second",
    "peak_mib",
    "seconds",
    "steps",
    "batch_size",
    "max_length",
    "precision",
    "device",
    "threads",
    "machine",
    "torch",
    "sentence_transformers",
)


def peak_mib() -> float:
    """Return this process's largest resident set so far, or its largest use of a GPU, in MiB."""
    import torch

    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ours(
    text: Path, steps: int, batch: int, length: int, precision: str, device: str
) -> dict[str, float]:
    """Train with ``isotrope.fit``."""
    import isotrope

    with tempfile.TemporaryDirectory() as folder:
        outcome = isotrope.fit(
            [text],
            output=f"{folder}/run",
            encoder="all-MiniLM-L6-v2",
            recipe="papers",
            head="none",
            device=device,
            batch_size=batch,
            max_steps=steps,
            max_length=length,
            precision=precision,
            progress=False,
        )
        metrics = outcome.result.metrics
        return {
            "sentences_per_second": metrics["samples_per_second"],
            "seconds": metrics["seconds"],
            "peak_mib": peak_mib(),
        }


def theirs(
    text: Path, steps: int, batch: int, length: int, precision: str, device: str
) -> dict[str, float]:
    """Train with SentenceTransformerTrainer on the batches that ours takes, in their order."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.training_args import (
        SentenceTransformerTrainingArguments,
    )
    from torch.utils.data import SequentialSampler

    from isotrope.data.text.batches import Batches
    from isotrope.encoders.names import resolve

    class InOrder(SentenceTransformerTrainer):
        def get_batch_sampler(self, dataset, batch_size, drop_last, **_):
            from sentence_transformers.base.sampler import DefaultBatchSampler

            return DefaultBatchSampler(
                SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last
            )

    sentences = text.read_text(encoding="utf-8").splitlines()
    batches = Batches(sentences, batch, seed=42)
    chosen = [sentences[i] for step in range(steps) for i in batches.at(step)]
    model = SentenceTransformer(str(resolve("all-MiniLM-L6-v2")), device=device)
    model.max_seq_length = length
    dataset = Dataset.from_dict({"anchor": chosen, "positive": chosen})
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            per_device_train_batch_size=batch,
            max_steps=steps,
            learning_rate=3e-5,
            max_grad_norm=1.0,
            lr_scheduler_type="linear",
            warmup_steps=0,
            seed=42,
            use_cpu=device == "cpu",
            bf16=precision == "bf16",
            save_strategy="no",
            report_to="none",
            logging_steps=10,
            disable_tqdm=True,
            dataloader_drop_last=True,
        )
        trainer = InOrder(
            model=model,
            args=arguments,
            train_dataset=dataset,
            loss=MultipleNegativesRankingLoss(model, scale=20.0),
        )
        out = trainer.train()
        return {
            "sentences_per_second": steps * batch / out.metrics["train_runtime"],
            "seconds": out.metrics["train_runtime"],
            "peak_mib": peak_mib(),
        }


def sentences(path: Path, count: int) -> None:
    """Write distinct sentences of this machine's documentation."""
    from corpus import collect

    texts = dict.fromkeys(item.query for item in collect())
    path.write_text("\n".join(list(texts)[:count]) + "\n", encoding="utf-8")


def main() -> None:
    """Alternate the two trainers and print the ratio of their medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--precision", choices=("32", "bf16"), nargs="+", default=["32", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--csv", type=Path, default=HERE / "throughput.csv")
    parser.add_argument("--one", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run = ours if options.one == "ours" else theirs
        setting = (options.batch[0], options.length, options.precision[0], options.device)
        found = run(options.text, options.steps, *setting)
        print("RESULT " + json.dumps(found))
        return
    missed = []
    for batch, precision in itertools.product(options.batch, options.precision):
        with tempfile.TemporaryDirectory() as folder:
            texts = (
                [options.text] if options.text else prepared(Path(folder), options.steps * batch)
            )
            for text in texts:
                setting = (text.stem, str(batch), str(options.length), precision, options.device)
                rows = [
                    measure(text, setting, options.steps, number, name)
                    for number in range(options.rounds)
                    for name in ("theirs", "ours")
                ]
                keep(options.csv, setting, rows)
                speed, memory = (
                    median(rows, "isotrope", x) / median(rows, "sentence-transformers", x)
                    for x in ("sentences_per_second", "peak_mib")
                )
                line = (
                    f"{text.stem}, batch {batch}, {options.length} tokens, precision {precision}: "
                    f"{speed:.2f} times their sentences/s, {memory:.2f} of their memory"
                )
                print(line, flush=True)
                if speed < TARGET:
                    missed.append(line)
    print(f"\n{len(missed)} below {TARGET}", *missed, sep="\n")


def measure(
    text: Path, setting: tuple[str, ...], steps: int, number: int, name: str
) -> dict[str, object]:
    """Return the row of one trainer, in a process of its own."""
    import sentence_transformers
    import torch

    _, batch, length, precision, device = setting
    command = [sys.executable, __file__, "--one", name, "--text", str(text), "--batch", batch]
    command += ["--steps", str(steps), "--length", length, "--precision", precision]
    command += ["--device", device]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    output = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout
    return {
        **dict(zip(SETTING, setting, strict=True)),
        "trainer": "isotrope" if name == "ours" else "sentence-transformers",
        "round": number,
        **json.loads(output.rpartition("RESULT ")[2]),
        "steps": steps,
        "threads": torch.get_num_threads(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores"
        if device == "cpu"
        else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "sentence_transformers": sentence_transformers.__version__,
    }


def keep(file: Path, setting: tuple[str, ...], rows: list[dict[str, object]]) -> None:
    """Write the rows of one setting beside those of others."""
    others = [row for row in ledger.read(file) if tuple(row[x] for x in SETTING) != setting]
    ledger.write(file, COLUMNS, [*others, *rows])


def prepared(folder: Path, count: int) -> list[Path]:
    """Write the texts that every machine has, and those of this one."""
    docstrings = folder / "docstrings.txt"
    sentences(docstrings, 2 * count)
    if not WIKIPEDIA.is_file():
        return [docstrings]
    wikipedia = folder / "wikipedia.txt"
    with gzip.open(WIKIPEDIA, "rt", encoding="utf-8") as handle:
        wikipedia.write_text("".join(itertools.islice(handle, 2 * count)), encoding="utf-8")
    return [docstrings, wikipedia]


def median(rows: list[dict[str, object]], trainer: str, column: str) -> float:
    """Return the median of a column over the rounds of one trainer."""
    return statistics.median(float(r[column]) for r in rows if r["trainer"] == trainer)


if __name__ == "__main__":
    main()
