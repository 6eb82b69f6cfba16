"""The Doctor as a guest: what it says in other people's trainers, of sound trainings and of faults.

`benchmarks/hosts_trainings.py` has the trainings; here is which verdict is right in each cell, and
how the host calls what has to be changed. Both were written down before the cells were run.

    OMP_NUM_THREADS=1 python benchmarks/hosts.py [--only HOST] [--again] [--python HOST=PYTHON ...]

A host is trained by the interpreter that ``--python`` names, or by PYTHONS/HOST/bin/python where
``--pythons PYTHONS`` is given, or else by this one. Hosts that cannot be imported there are left
out. Cells that are in benchmarks/hosts.csv are kept, so that an interrupted run continues; --again
runs them again. HOSTS_SEED=1 draws other texts, images, batches and weights; these cells are in
benchmarks/hosts-seed1.csv. The table goes to standard output in the format of the documentation.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import ledger

HERE = Path(__file__).resolve().parent
_SEED = os.environ.get("HOSTS_SEED", "0")
CSV = HERE / ("hosts.csv" if _SEED == "0" else f"hosts-seed{_SEED}.csv")
COLUMNS = (
    *("host", "cell", "expected", "verdict", "right", "advice", "advised", "raised", "identical"),
    *("loss", "temperature", "negatives", "evidence", "seconds", "version"),
)
SOUND = {"healthy", "spreading"}

EXPECTED = {
    "healthy": {"healthy"},
    "temperature-too-high": {"negatives-not-hard"},
    "temperature-too-low": {"temperature-too-low"},
    "learning-rate-100x": {"diverging", "collapsed"},
    "one-row": {"no-negatives"},
    "duplicates": {"false-negatives"},
    "shuffled-positives": {"unrelated-positives"},
    "attraction-only": {"only-pulled"},
}
"""The verdicts that are right, of each fault; the first word counts."""

ADVICE = {
    "temperature-too-high": "{temperature}",
    "temperature-too-low": "{temperature}",
    "learning-rate-100x": "{rate}",
    "one-row": "{batch}",
    "duplicates": "{copies}",
    "shuffled-positives": "belong together",
    "attraction-only": "negatives",
}
"""What the advice must say, as a regular expression with the words of the host."""


@dataclass(frozen=True)
class Host:
    """A trainer.

    Attributes:
        module: to import.
        distribution: in whose metadata its version is.
        words: how it calls temperature, learning rate and batch; plain words for a loop of one's
            own, where the Doctor sees the loss alone.
        lacks: cells that cannot exist, with the reason.
        processes: that train together.
        rebuilt: whether its trainer is rebuilt here instead of imported.
    """

    module: str
    distribution: str
    words: Mapping[str, str]
    lacks: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1
    rebuilt: bool = False


_ARGUMENTS = {"batch": "per_device_train_batch_size=", "rate": "learning_rate=", "copies": "two"}
_SENTENCE_TRANSFORMERS = {**_ARGUMENTS, "temperature": "scale=", "copies": "NO_DUPLICATES"}
_FLAGS = {
    "temperature": "--temperature ",
    "rate": "--learning_rate ",
    "batch": "--per_device_train_batch_size ",
    "copies": "two",
}
_WORDS = {
    "temperature": "a temperature of",
    "rate": "learning.rate",
    "batch": "a batch of",
    "copies": "two",
}
_CONTRASTIVE_ONLY = {"attraction-only": "its losses all push"}

HOSTS = {
    "sentence-transformers": Host(
        "sentence_transformers", "sentence-transformers", _SENTENCE_TRANSFORMERS
    ),
    "transformers": Host(
        "transformers", "transformers", {**_ARGUMENTS, "temperature": "a temperature of"}
    ),
    "FlagEmbedding": Host("FlagEmbedding", "FlagEmbedding", _FLAGS, _CONTRASTIVE_ONLY),
    "torchrun": Host(
        "sentence_transformers",
        "sentence-transformers",
        _SENTENCE_TRANSFORMERS,
        {"one-row": "each process has the other's row"},
        processes=2,
    ),
    "open-clip": Host("open_clip", "open_clip_torch", _WORDS, _CONTRASTIVE_ONLY),
    "pytorch-metric-learning": Host("pytorch_metric_learning", "pytorch-metric-learning", _WORDS),
    "lightly": Host("lightly", "lightly", {**_WORDS, "temperature": "temperature="}),
    "pylate": Host(
        "pylate", "pylate", {**_ARGUMENTS, "temperature": "temperature="}, _CONTRASTIVE_ONLY
    ),
    "accelerate": Host("accelerate", "accelerate", _WORDS, processes=2),
    "tevatron": Host("transformers", "transformers", _FLAGS, _CONTRASTIVE_ONLY, rebuilt=True),
    "stable-pretraining": Host(
        "stable_pretraining",
        "stable-pretraining",
        {**_WORDS, "temperature": "temperature="},
        _CONTRASTIVE_ONLY,
    ),
    "ms-swift": Host(
        "swift",
        "ms-swift",
        {**_FLAGS, "temperature": "INFONCE_TEMPERATURE="},
        rebuilt=True,
    ),
}
"""In the order of their downloads."""


def right(cell: str, verdict: str) -> bool:
    """Return whether a verdict is one of the expected ones."""
    words = verdict.split()
    return bool(words) and words[0] in EXPECTED[cell]


def advised(host: Host, cell: str, advice: str) -> bool:
    """Return whether the advice names what has to be changed, as the host calls it."""
    pattern = ADVICE.get(cell)
    return pattern is None or bool(re.search(pattern.format(**host.words), advice, re.IGNORECASE))


def version(python: str, host: Host) -> str | None:
    """Return the version of a host in an interpreter; None if it cannot be imported there."""
    code = (
        f"import importlib.metadata as m, importlib.util as u; "
        f"assert u.find_spec({host.module!r}); print(m.version({host.distribution!r}))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def trained(python: str, name: str, host: Host, folder: Path, cells: list[str]) -> Iterator[dict]:
    """Yield what the cells of a host give, as they are trained."""
    command = [python, str(HERE / "hosts_trainings.py"), name, str(folder), *cells]
    if host.processes > 1:
        command[1:1] = [
            *("-m", "torch.distributed.run", "--standalone", "--log-dir", str(folder / "logs")),
            f"--nproc-per-node={host.processes}",
        ]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    with (
        (folder / f"{name}.log").open("a") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('{"host"'):
                yield json.loads(line)


def read() -> dict[tuple[str, str], dict[str, str]]:
    """Return the cells so far."""
    return {(row["host"], row["cell"]): row for row in ledger.read(CSV)}


def write(rows: Mapping[tuple[str, str], Mapping[str, object]]) -> None:
    """Write all cells, in the order of the hosts and of the faults."""
    there = [rows[key] for key in itertools.product(HOSTS, EXPECTED) if key in rows]
    ledger.write(CSV, COLUMNS, ({name: row.get(name, "") for name in COLUMNS} for row in there))


def run(python: str, name: str, folder: Path, *, again: bool) -> None:
    """Train the cells of a host that have no row yet."""
    host, rows = HOSTS[name], {key: row for key, row in read().items() if key[0] == name}
    found = version(python, host)
    if found is None:
        print(f"{name}: not installed for {python}", file=sys.stderr)
        return
    cells = [c for c in EXPECTED if again or (name, c) not in rows]
    for cell in [c for c in cells if c in host.lacks]:
        rows[name, cell] = {"host": name, "cell": cell, "right": "n/a", "verdict": host.lacks[cell]}
    for one in trained(python, name, host, folder, [c for c in cells if c not in host.lacks]):
        cell, verdict = one["cell"], one.get("verdict", "")
        one |= {
            "expected": " or ".join(sorted(EXPECTED[cell])),
            "right": right(cell, verdict),
            "advised": advised(host, cell, one.get("advice", "")),
            "version": found + (" (rebuilt)" if host.rebuilt else ""),
        }
        print(f"{name} {cell}: {verdict} {'right' if one['right'] else 'WRONG'}", file=sys.stderr)
        rows = {**read(), **rows, (name, cell): one}
        write(rows)
    write({**read(), **rows})


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    rows = read()
    yield "| host | " + " | ".join(EXPECTED) + " |"
    yield "|---|" + "---|" * len(EXPECTED)
    for name in HOSTS:
        if any(host == name for host, _ in rows):
            cells = [_word(rows.get((name, cell))) for cell in EXPECTED]
            yield f"| {name} | " + " | ".join(cells) + " |"


def _word(row: Mapping[str, str] | None) -> str:
    if row is None:
        return ""
    if row["right"] == "n/a":
        return "n/a"
    if row["right"] == "True":
        return "right" if row["advised"] == "True" else "right, advice wrong"
    return row["verdict"].split()[0] if row["verdict"] else "error"


def summary() -> Iterator[str]:
    """Yield the counts."""
    rows = [row for row in read().values() if row["right"] != "n/a"]
    sound = [row for row in rows if row["cell"] == "healthy"]
    faulty = [row for row in rows if row["cell"] != "healthy"]

    def first(row: Mapping[str, str]) -> str:
        return (row["verdict"].split() or [""])[0]

    counts = {
        "cells": len(rows),
        "hosts": len({row["host"] for row in rows}),
        "exceptions": sum(bool(row["raised"]) for row in rows),
        "weights changed": sum(row["identical"] != "True" for row in rows),
        "healthy called faulty": sum(first(row) not in SOUND | {"not-examined"} for row in sound),
        "faults called healthy": sum(first(row) in SOUND for row in faulty),
        "not examined": sum(first(row) == "not-examined" for row in rows),
        "right verdicts": sum(row["right"] == "True" for row in rows),
        "right advice in faulty cells": sum(row["advised"] == "True" for row in faulty),
    }
    yield "; ".join(f"{name} {number}" for name, number in counts.items())


def main() -> None:
    """Train, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--only", action="append", choices=list(HOSTS), help="host to train [all]")
    add("--again", action="store_true", help="train cells that have a row, too")
    add("--pythons", type=Path, help="folder of one environment for each host")
    add("--python", action="append", default=[], metavar="HOST=PYTHON", help="interpreter")
    add("--work", type=Path, default=Path("hosts-work"), help="folder of models and logs")
    options = parser.parse_args()
    named = dict(pair.split("=", 1) for pair in options.python)
    options.work.mkdir(parents=True, exist_ok=True)
    for name in options.only or HOSTS:
        own = options.pythons and options.pythons / name / "bin" / "python"
        python = named.get(name) or (str(own) if own and own.is_file() else sys.executable)
        run(python, name, options.work.resolve(), again=options.again)
    print("\n".join([*table(), "", *summary()]))


if __name__ == "__main__":
    main()
