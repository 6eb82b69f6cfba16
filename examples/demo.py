"""Train, evaluate, compare and diagnose on text that is already here: find Python functions.

    python -m examples.demo [--output DIR] [--seeds 0 1 2]    # or: make demo, make demo-seeds

The docstrings of the installed packages are the corpus: the first sentence of each is a query, the
rest its target. Real pretrained weights are trained on pairs (query, target) of some functions:
once by the recipe of ``isotrope train``, and for 20 steps each with three objectives: InfoNCE,
Barlow Twins (ineffective for sentences: Li et al. 2024) and its modified form. Other functions,
never trained on, are then searched for. The best model is chosen by a dev score on part of the
*training* text, so the held-out functions choose nothing.
"""

import argparse
import csv
import io
import shlex
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from examples.docstrings import Documented, collect, split
from isotrope.core.documents import read_yaml
from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace
from isotrope.core.result import Result, provenance
from isotrope.core.run_folder import RunFolder
from isotrope.core.table import TitledTable, table
from isotrope.core.views import Views
from isotrope.data.text.retrieval_sets import RetrievalSet
from isotrope.diagnostics.findings import Diagnosis
from isotrope.diagnostics.target import diagnose
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.nearest import nearest_rows
from isotrope.evaluation.retrieval import retrieval, retrieval_evaluation
from isotrope.measures.alignment import alignment
from isotrope.measures.judgement import DevHistory, Judgement, judge
from isotrope.measures.uniformity import uniformity
from isotrope.paradigm import registry
from isotrope.paradigm.anatomy import anatomy
from isotrope.reports.html import write_report
from isotrope.training.fit_text import fit
from isotrope.training.run import Outcome

ENCODER = "all-MiniLM-L6-v2"
OBJECTIVES = ("infonce", "barlowtwins", "modifiedbarlowtwins")
MODELS = ("recipe", *OBJECTIVES)
COLUMNS = (
    "model",
    "MRR@10",
    "recall@1",
    "alignment",
    "uniformity",
    "GD",
    "hardest share",
    "ratio",
    "seconds",
)


@dataclass(frozen=True)
class Example:
    """One search before and after training: query, names of the first finds, and the right one."""

    query: str
    before: Sequence[str]
    after: Sequence[str]
    answer: str


@dataclass(frozen=True)
class DemoRecipe:
    """The settings of the demo. Those of the objectives were found by experiment (docs/LOG.md).

    Attributes:
        heldout: functions searched for, never trained on.
        trained: functions trained on, at most.
        steps: of each training, except the recipe's.
        batch_size: pairs a step.
        max_length: tokens in training, except the recipe's.
        search_length: tokens when functions are searched for, and in the recipe's training.
        learning_rate: of all objectives, except the recipe's.
        holdout: share of the trained functions that only choose the best step and model.
        probe: pairs whose gradient components are reported together.
    """

    heldout: int = 1000
    trained: int = 4000
    steps: int = 20
    batch_size: int = 64
    max_length: int = 32
    search_length: int = 64
    learning_rate: float = 5e-5
    holdout: float = 0.05
    probe: int = 64


RECIPE = DemoRecipe()


@dataclass(frozen=True)
class Row:
    """One line of the demo's table, the model after the last step; None where there is no number.

    ``mrr`` and ``recall`` are shares of 1, as in ``demo.json`` and ``seeds.csv``; what is printed
    is out of 100.
    ``saved`` says whether that is the model that its run saved; if not, it saved the untrained one.
    ``judgement`` compares it with the untrained model on the functions searched for, which chose
    nothing.
    """

    model: str
    mrr: float
    recall: float
    alignment: float
    uniformity: float
    dissipation: float | None = None
    hardest_share: float | None = None
    ratio: float | None = None
    seconds: float | None = None
    saved: bool = True
    judgement: Judgement | None = None

    @property
    def label(self) -> str:
        """The model, and whether it is not the saved one."""
        name = "before fine-tuning" if self.model == "untrained" else self.model
        return name if self.saved else f"{name} (last step, not saved)"

    def shown(self) -> list[str | float | None]:
        """The values as they are printed: scores out of 100."""
        others = self.cells()[3:]
        return [self.label, 100 * self.mrr, 100 * self.recall, *others]

    def cells(self) -> list[str | float | None]:
        """The values in the order of ``COLUMNS``."""
        return [
            self.model,
            self.mrr,
            self.recall,
            self.alignment,
            self.uniformity,
            self.dissipation,
            self.hardest_share,
            self.ratio,
            self.seconds,
        ]


@dataclass(frozen=True)
class Demo:
    """The outcome of the demo.

    Attributes:
        rows: untrained first, then one for each of ``MODELS``.
        best: name of the model chosen by the dev score, or ``"untrained"``.
        model: folder of the best model.
        report: the HTML file.
        examples: three searches before and after.
        diagnoses: what the doctor says of each run, by its name.
        functions: how many were found in all.
    """

    rows: list[Row]
    best: str
    model: Path | None
    report: Path
    examples: list[Example]
    diagnoses: dict[str, Diagnosis]
    functions: int


class _StaticVectors:
    """An encoder that keeps what it has encoded, so that several measures share one pass."""

    def __init__(self, encoder: SentenceEncoder, recipe: DemoRecipe, texts: Sequence[str]) -> None:
        matrix = encoder.encode(texts, max_length=recipe.search_length)
        self.name = encoder.name
        self.rows = dict(zip(texts, matrix, strict=True))

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return the rows of known texts."""
        return np.stack([self.rows[text] for text in texts])


def demo(
    output: Path, *, seed: int = 0, recipe: DemoRecipe = RECIPE, tell: Callable[[str], None] = print
) -> Demo:
    """Run the demo once and write its folder: a run for each of ``MODELS``, and the report.

    Args:
        output: folder; an earlier demo in it is replaced, anything else is refused.
        seed: of the held-out functions, the data order, dropout.
        recipe: sizes and training settings.
        tell: where progress messages go.

    Raises:
        InputError: the folder holds something else, or the weights are not installed.
    """
    output = Path(output)
    _make_room(output)
    encoder = SentenceEncoder.load(ENCODER, device="cpu")
    began = time.perf_counter()
    items = collect()
    rest, heldout = split(items, recipe.heldout, seed)
    if len(rest) > recipe.trained:
        _, rest = split(rest, recipe.trained, seed)
    tell(
        f"{len(items):,} documented functions on this machine "
        f"({time.perf_counter() - began:.0f} s); {len(rest):,} to train on, "
        f"{len(heldout):,} held out"
    )
    with atomic_replace(output / "pairs.tsv") as temporary:
        lines = (f"{_cell(item.query)}\t{_cell(item.target)}\n" for item in rest)
        temporary.write_text("".join(lines), encoding="utf-8")
    data = _retrieval(heldout)
    texts = [*data.queries, *data.corpus]
    before = _StaticVectors(encoder, recipe, texts)
    rows = [_row("untrained", before, before, data, None, recipe)]
    tell(f"before fine-tuning: MRR@10 {100 * rows[0].mrr:.2f} on the held-out functions")
    scores: dict[str, float] = {"untrained": -1.0}
    after: dict[str, _StaticVectors] = {}
    for name in MODELS:
        outcome = _train(name, output, seed, recipe)
        run = outcome.result.metrics
        assert outcome.encoder is not None
        after[name] = _StaticVectors(outcome.encoder, recipe, texts)
        rows.append(_row(name, after[name], before, data, float(run["seconds"] or 0), recipe))
        scores["untrained"] = float(run["dev_start"] or 0)
        scores[name] = float(run["dev_best"] or 0)
        rows[-1] = replace(rows[-1], saved=run["dev_best_step"] == run["steps"])
        tell(line(rows[-1], rows[0]))
        judged = outcome.result.details["verdict"]
        tell(f"  on its dev set, part of the training text: {judged}")
    best = max(scores, key=lambda name: scores[name])
    examples = [] if best == "untrained" else _examples(heldout, before, after[best])
    tell("diagnosing the runs ...")
    diagnoses = {name: diagnose(output / name) for name in MODELS}
    report = write_report(
        [output / name for name in MODELS],
        output / "report.html",
        title="Find the function by what it does",
        tables=[_table(rows, len(heldout), best, seed, recipe), _searches(examples)],
    )
    metrics: dict[str, float | int | str | None] = {}
    for row in rows:
        metrics |= {f"{row.model}/mrr@10": row.mrr, f"{row.model}/recall@1": row.recall}
    Result(
        kind="demo",
        name=output.name,
        metrics=metrics,
        details={"best": best, "functions": len(items)},
        provenance=provenance(seed=seed),
    ).save(output / "demo.json")
    model = None if best == "untrained" else RunFolder(output / best).model
    return Demo(rows, best, model, report, examples, diagnoses, len(items))


def _retrieval(items: Sequence[Documented]) -> RetrievalSet:
    """Return the task of finding each function by its description."""
    return RetrievalSet(
        queries=[item.query for item in items],
        corpus=[item.target for item in items],
        relevant=[{i: 1.0} for i in range(len(items))],
    )


def _train(name: str, output: Path, seed: int, recipe: DemoRecipe) -> Outcome:
    """Fine-tune MiniLM on the pairs in ``output``, by the recipe or with one objective."""
    own: dict[str, Any] = {"max_length": recipe.search_length}
    if name in OBJECTIVES:
        own = {
            "objective": name,
            "head": "none",
            "eval_every": recipe.steps,
            "batch_size": recipe.batch_size,
            "max_steps": recipe.steps,
            "max_length": recipe.max_length,
            "learning_rate": recipe.learning_rate,
        }
    return fit(
        [output / "pairs.tsv"],
        output=output / name,
        encoder=ENCODER,
        device="cpu",
        dev="auto",
        holdout=recipe.holdout,
        log_every=2,
        seed=seed,
        progress=sys.stderr.isatty(),
        **own,
    )


def _table(
    rows: Sequence[Row], heldout: int, best: str, seed: int, recipe: DemoRecipe
) -> TitledTable:
    """Return the demo's table for the report, with a note on what it shows."""
    note = (
        f"{heldout:,} held-out functions: query the first sentence of the docstring, target "
        f"the rest, searched among all {heldout:,} targets; MRR@10 and recall are out of 100. GD, "
        "hardest share and ratio: each objective's own, on held-out pairs in batches of "
        f"{recipe.probe}. Where the last step is not saved, the saved model is the one before "
        "fine-tuning: no step had a higher dev score. Barlow Twins' ratio is matrix-valued. "
        '"recipe" is `isotrope train` with the settings that it chooses itself. Seed '
        f"{seed}. The best model ({best}) was chosen by the dev score."
    )
    cells = [row.shown() for row in rows]
    return TitledTable("Held-out functions", note, COLUMNS, cells)


def _make_room(output: Path) -> None:
    """Remove an earlier demo.

    Raises:
        InputError: the folder holds something that is not a demo of ours.
    """
    if output.is_dir() and any(output.iterdir()):
        written = {"pairs.tsv", "report.html", "demo.json"}
        strange = sorted(
            item.name for item in output.iterdir() if item.name not in written and not _is_run(item)
        )
        if strange:
            raise InputError(
                f"{output} holds something else than a demo ({strange[0]}); choose another folder"
            )
        shutil.rmtree(output)


def _is_run(folder: Path) -> bool:
    """Return whether a folder is one of our runs, and not another's of the same name."""
    config = RunFolder(folder).config
    if folder.name not in MODELS or not config.is_file():
        return False
    return bool(read_yaml(config).get("files") == [str(folder.parent / "pairs.tsv")])


def line(row: Row, untrained: Row) -> str:
    """Return the score of the model that a run has saved, and of the last step where it is not."""
    saved = row.mrr if row.saved else untrained.mrr
    last = (
        ""
        if row.saved
        else f", the one before fine-tuning (last step, not saved: {100 * row.mrr:.2f})"
    )
    return f"{row.model}: MRR@10 {100 * saved:.2f} on the held-out functions: the saved model{last}"


def _cell(text: str) -> str:
    return " ".join(text.split())


def _row(
    name: str,
    vectors: _StaticVectors,
    before: _StaticVectors,
    data: RetrievalSet,
    seconds: float | None,
    recipe: DemoRecipe,
) -> Row:
    metrics = retrieval(vectors, data, ks=(1,)).metrics
    judged = DevHistory("MRR@10 of the held-out functions", "last")
    for step, model in ((0, before), (1, vectors)):
        judged.add(step, retrieval_evaluation(model, data))
    queries, targets = (
        torch.from_numpy(vectors.encode(texts)) for texts in (data.queries, data.corpus)
    )
    components: dict[str, float | None] = {}
    if name in OBJECTIVES:
        objective = registry.build(name)
        rows = [
            anatomy(objective, Views(queries[i : i + recipe.probe], targets[i : i + recipe.probe]))
            for i in range(0, len(queries) - recipe.probe + 1, recipe.probe)
        ]
        components = {key: _mean([row[key] for row in rows]) for key in rows[0]}
    return Row(
        model=name,
        mrr=float(metrics["mrr@10"] or 0),
        recall=float(metrics["recall@1"] or 0),
        alignment=float(alignment(queries, targets)),
        uniformity=float(uniformity(torch.cat([queries, targets]))),
        dissipation=components.get("dissipation"),
        hardest_share=components.get("hardest_share"),
        ratio=components.get("ratio"),
        seconds=seconds,
        judgement=None if vectors is before else judge(judged),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return statistics.fmean(measured) if measured else None


def _searches(examples: Sequence[Example]) -> TitledTable:
    """Return the examples as a table of the report."""
    rows = [
        (example.query if not place else "", *(_mark(name, example.answer) for name in found))
        for example in examples
        for place, found in enumerate(zip(example.before, example.after, strict=True))
    ]
    note = "The first results for a query, best first; \N{CHECK MARK} marks the right one."
    columns = ("query", "before training", "after training")
    return TitledTable("Searches before and after training", note, columns, rows)


def _mark(name: str, answer: str) -> str:
    return f"{name} \N{CHECK MARK}" if name == answer else name


def _examples(
    heldout: Sequence[Documented], before: _StaticVectors, after: _StaticVectors
) -> list[Example]:
    """Three held-out functions whose first find has changed, the first one for the better.

    The others, and the first among those that got better, are in order of name.
    """
    targets = [item.target for item in heldout]
    queries = [item.query for item in heldout]
    rankings = [
        nearest_rows(vectors.encode(queries), vectors.encode(targets), 3)[0]
        for vectors in (before, after)
    ]
    changed = [i for i in range(len(heldout)) if rankings[0][i, 0] != rankings[1][i, 0]]
    better = [i for i in changed if rankings[1][i, 0] == i][:1]
    chosen = [*better, *(i for i in changed if i not in better)][:3]
    return [
        Example(
            query=heldout[i].query,
            before=[heldout[j].name for j in rankings[0][i]],
            after=[heldout[j].name for j in rankings[1][i]],
            answer=heldout[i].name,
        )
        for i in chosen
    ]


def seeds_csv(runs: dict[int, list[Row]]) -> str:
    """Return the tables of several seeds as CSV text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["seed", *COLUMNS])
    for seed, rows in runs.items():
        for row in rows:
            cells: list[Any] = [
                f"{c:.4f}" if isinstance(c, float) else ("" if c is None else c)
                for c in row.cells()
            ]
            writer.writerow([seed, *cells])
    return text.getvalue()


def main() -> None:
    """Parse, run, print the table, the examples and the paths."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--output", type=Path, default=Path("demo"), metavar="DIR", help="[demo]")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0], metavar="N", help="one demo for each [0]"
    )
    options = parser.parse_args()
    runs: dict[int, list[Row]] = {}
    for seed in options.seeds:
        folder = options.output if len(options.seeds) == 1 else options.output / f"seed-{seed}"
        outcome = demo(folder, seed=seed, tell=lambda line: print(line, flush=True))
        runs[seed] = outcome.rows
        print()
        cells = [[*map(_shown, row.shown())] for row in outcome.rows]
        print(table(COLUMNS, cells))
        print("\ngain in MRR@10 over the model before fine-tuning, on the held-out functions:")
        for row in outcome.rows[1:]:
            print(f"  {row.label}: {_gain(row)}")
        if outcome.examples:
            print("\nwhat is found first, before and after; the right answer in brackets:")
        for example in outcome.examples:
            print(f"\n  {example.query}")
            print(f"    before: {_found(example.before, example.answer)}")
            print(f"    after:  {_found(example.after, example.answer)}")
        print(f"\nbest model by the dev set: {outcome.model or 'the one before fine-tuning'}")
        print(f"report: {outcome.report}\n")
        print("\n".join(_closing(outcome, folder)))
    if len(runs) > 1:
        print(
            table(
                [
                    "gain in MRR@10 by fine-tuning, after the last step, saved or not",
                    *map(str, runs),
                    "mean",
                    "std",
                ],
                _gains(runs),
            )
        )
        with atomic_replace(options.output / "seeds.csv") as temporary:
            temporary.write_text(seeds_csv(runs), encoding="utf-8")
        print(f"\n{options.output / 'seeds.csv'}")


def _closing(outcome: Demo, folder: Path) -> list[str]:
    """Return what the doctor says of each run, and what to type next."""
    lines = ["what `isotrope diagnose` says of the runs:"]
    for name, diagnosis in outcome.diagnoses.items():
        first = diagnosis.findings[:1]
        change = f"; change: {first[0].change}" if first else ""
        lines.append(f"  {name}: {', '.join(diagnosis.verdict)}{change}")
    best = folder / (outcome.best if outcome.model else "infonce")
    query = outcome.examples[0].query if outcome.examples else "read a file line by line"
    return [
        *lines,
        "\nnext:",
        f"  isotrope diagnose {shlex.quote(str(best))}",
        f"  isotrope search {shlex.quote(str(best))} YOUR_TEXT.txt {shlex.quote(query)}",
        "  isotrope train YOUR_PAIRS.tsv --output runs/first",
    ]


def _gains(runs: dict[int, list[Row]]) -> list[list[str]]:
    names = [row.model for row in next(iter(runs.values()))][1:]
    rows = []
    for i, name in enumerate(names, start=1):
        gains = [
            100 * (rows_of_seed[i].mrr - rows_of_seed[0].mrr) for rows_of_seed in runs.values()
        ]
        spread = statistics.stdev(gains)
        rows.append(
            [name, *(f"{g:+.2f}" for g in [*gains, statistics.fmean(gains)]), f"{spread:.2f}"]
        )
    return rows


def _gain(row: Row) -> str:
    """Return the gain with its interval, and the outcome."""
    assert row.judgement is not None
    last = row.judgement.numbers["last"]
    gain, low, high = (last[name] for name in ("difference", "low", "high"))
    return f"{gain:+.2f}, 95% interval {low:+.2f} to {high:+.2f}: {row.judgement.outcome}"


def _shown(cell: str | float | None) -> str:
    if cell is None:
        return "-"
    return cell if isinstance(cell, str) else f"{cell:.4f}" if abs(cell) < 10 else f"{cell:.2f}"


def _found(names: Sequence[str], answer: str | None) -> str:
    return ", ".join(f"[{name}]" if name == answer else name for name in names)


if __name__ == "__main__":
    main()
