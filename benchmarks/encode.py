"""Sentences a second of ``isotrope encode`` beside ``SentenceTransformer.encode``.

Each measurement is a process of its own, and the ways alternate, so that a busy machine disturbs
all alike. Seconds count everything after the model is loaded: tokenizing, embedding and, for
``isotrope encode``, reading the file twice, starting further processes with a model each, and
writing the matrix.

    python benchmarks/encode.py [--texts 20000] [--rounds 3] [--device cpu] [--csv FILE]

The texts are the first sentences of ``../shared/data/corpus`` (Wikipedia), or without that folder
of the docstrings installed here; the model is all-MiniLM-L6-v2.
"""

import argparse
import csv
import gzip
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WIKIPEDIA = Path(__file__).parents[2] / "shared" / "data" / "corpus" / "wiki_en_1m.txt.gz"
COLUMNS = ("way", "round", "sentences_per_second", "texts", "device", "cores", "torch")
WAYS = {"sentence-transformers": 0, "isotrope": 1, "isotrope, 2 processes": 2}


def texts(file: Path, count: int) -> None:
    """Write ``count`` texts to a file, one a line."""
    if WIKIPEDIA.exists():
        with gzip.open(WIKIPEDIA, "rt", encoding="utf-8") as handle:
            lines = [line.strip() for line in itertools.islice(handle, count)]
    else:
        from corpus import collect

        lines = [item.query for item in collect()[:count]]
    file.write_text("\n".join(line for line in lines if line) + "\n", encoding="utf-8")


def seconds(jobs: int, file: Path, device: str) -> float:
    """Encode the texts of a file, and return the seconds after the model is loaded."""
    if jobs == 0:
        from sentence_transformers import SentenceTransformer

        from isotrope.encoders.names import resolve

        model = SentenceTransformer(str(resolve("all-MiniLM-L6-v2")), device=device)
        lines = file.read_text(encoding="utf-8").splitlines()
        start = time.perf_counter()
        model.encode(lines, batch_size=128)
        return time.perf_counter() - start
    from isotrope.encoders.sentence import SentenceEncoder
    from isotrope.evaluation.files import encode_file

    start = time.perf_counter()
    SentenceEncoder.load("all-MiniLM-L6-v2", device=device)
    loading = time.perf_counter() - start
    start = time.perf_counter()
    encode_file("all-MiniLM-L6-v2", file, file.with_suffix(".npy"), device=device, jobs=jobs)
    return time.perf_counter() - start - loading


def main() -> None:
    """Measure every way in turn and print the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--csv", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(seconds(int(options.one[0]), Path(options.one[1]), options.device))
        return
    import torch

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.txt"
        texts(file, options.texts)
        count = len(file.read_text(encoding="utf-8").splitlines())
        for turn, (way, jobs) in itertools.product(range(options.rounds), WAYS.items()):
            command = [sys.executable, __file__, "--one", str(jobs), str(file)]
            command += ["--device", options.device]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            rate = count / float(said.split()[-1])
            where = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
            rows.append(
                (way, turn, round(rate, 1), count, where, os.cpu_count(), torch.__version__)
            )
            print(f"{way}: {rate:.0f} sentences a second", flush=True)
    with options.csv.open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows([COLUMNS, *rows])
    for way in WAYS:
        print(f"{way}: median {statistics.median(row[2] for row in rows if row[0] == way):.0f}")


if __name__ == "__main__":
    main()
