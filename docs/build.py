"""Write what is generated: docs/objectives/, methods/, commands/, diagnoses/, tables of the guide.

Run by `make docs`; the pages are made by docs/generate/. tests/docs/test_choose.py and those named
test_*_pages.py there fail where what is committed is out of date.
"""

import csv
import functools
import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

# papers/ and docs/generate/ are no part of what is installed
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.generate.command_pages import write_command_pages
from docs.generate.diagnosis_pages import with_limit, write_diagnosis_pages
from docs.generate.errata_page import write_errata_page
from docs.generate.method_pages import write_method_pages
from docs.generate.objective_pages import grid, write_pages
from docs.generate.question_pages import write_question_page
from docs.generate.replication_page import PIXELS, write_replication_page
from docs.generate.text_options import write_text_options
from isotrope.adapters.doctor.messages import HOSTS
from isotrope.core.image_methods import METHODS
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.metrics import METRICS
from isotrope.diagnostics.verdicts import VERDICTS
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.training.images.settings import find_method
from papers.machinery.recipes import SEEDS, small_images
from papers.machinery.store import JobStore
from papers.paper_numbers import printed
from papers.plots.charts import Chart, Series, charts

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
GUIDE = ROOT / "docs" / "guide"
SKILL = ROOT / "skills" / "diagnose-embedding-training" / "SKILL.md"
# printed diagnoses of a training with a temperature of 3, and the threshold that decides them
DIAGNOSES = ROOT / "README.md", ROOT / "docs" / "generate" / "outputs" / "diagnose.txt"
DECIDING = "hardest_at_high_temperature"
# of the trainings on small images: the methods by their recipes
METHOD_CELLS = (
    *("MIOv3", "SimCLR", "DCL", "DCLW", "VICReg", "MIOv1"),
    *("Barlow Twins", "SimSiam", "BYOL", "MIOv2"),
)


def ours() -> list[str]:
    """Return the names of the objectives in the package; a plugin's have no page here."""
    known = Objective.registered
    return [name for name in registry.names() if known[name].__module__.startswith("isotrope.")]


def filled(text: str, name: str, table: str) -> str:
    """Return a page with a table between the comments that name it."""
    begin, end = f"<!-- {name}: written by `make docs` -->\n", f"<!-- end of {name} -->\n"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}{table}{end}{after}"


def choose(text: str) -> str:
    """Return the page on choosing an objective with its tables as files and registry have them."""
    text = filled(text, "gains", grid(["objective", "gain in MRR@10"], _gain_lines()))
    text = filled(text, "images", _images())
    text = filled(text, "printed", _printed())
    return filled(text, "uses", _uses())


def columns_of(text: str) -> str:
    """Return the page on the numbers of a training with the table of all columns."""
    logs = {"text": "text", "images": "images", "doctor": "`isotrope.Doctor`"}
    rows = []
    for metric in METRICS:
        column = f"`{metric.column}`" + (f", {metric.symbol}" if metric.symbol else "")
        meaning = metric.definition + (f" ({metric.unit})" if metric.unit else "")
        if 0 < len(metric.logs) < len(logs):
            meaning += "; only " + ", ".join(logs[log] for log in metric.logs)
        if metric.logs:
            rows.append([column, meaning])
    return filled(text, "columns", grid(["column", "what it is"], rows))


def skill(text: str) -> str:
    """Return the skill with the recipes of the page on other trainers, and with all verdicts."""
    page = (GUIDE / "trainers.md").read_text(encoding="utf-8")
    _, rest = page.split("## A recipe for each trainer\n")
    recipes = re.sub(r"<!-- not run: .+ -->\n", "", rest[: rest.index("\n## ") + 1])
    text = filled(text, "recipes", f"## Recipes\n{recipes}")
    case = RunEvidence(settings={"trainer": "any"}, words=HOSTS["sentence_transformers"])
    lines = [[f"`{v.slug}`", v.title, v.change.worded(case) or "none"] for v in VERDICTS.values()]
    return filled(text, "verdicts", grid(["verdict", "what it means", "change"], lines))


def _read(file: str) -> list[dict[str, str]]:
    with (RESULTS / file).open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def gains() -> dict[str, list[float]]:
    """Return what each objective gained over the model before fine-tuning, by seed, out of 100."""
    rows = _read("demo-seeds.csv")
    start = {row["seed"]: float(row["MRR@10"]) for row in rows if row["model"] == "untrained"}
    gained = defaultdict(list)
    for row in rows:
        if row["model"] != "untrained":
            gained[row["model"]].append(100 * (float(row["MRR@10"]) - start[row["seed"]]))
    return dict(gained)


def accuracies(column: str) -> dict[str, dict[int, list[float]]]:
    """Return a column of the trainings on images: by method and epoch, a value for each seed."""
    values: dict[str, dict[int, list[float]]] = {name: defaultdict(list) for name in METHOD_CELLS}
    store = _image_trainings()
    for name, seed in itertools.product(METHOD_CELLS, SEEDS["cpu"]):
        result = store.find(small_images("cpu", name, (seed,))[0])
        looks = [] if result is None else result.details["looks"]
        for row in looks[-1:] if column == "linear" else looks:
            value = result.metrics["linear"] if column == "linear" else row[column]
            values[name][int(row["epoch"])].append(float(value))
    return values


@functools.cache
def _image_trainings() -> JobStore:
    return JobStore(RESULTS / "reproduce" / "cells")


def _spread(values: Iterable[float], digits: int, sign: str = "") -> str:
    every = list(values)
    text = f"{np.mean(every):{sign}.{digits}f}"
    return text if len(every) < 2 else f"{text} ± {np.std(every, ddof=1):.{digits}f}"


def _gain_lines() -> list[list[str]]:
    recipe = "all settings chosen by `isotrope train`"
    return [
        [
            recipe if name == "recipe" else f"[`{name}`](../objectives/{name}.md)",
            _spread(of, 1, "+"),
        ]
        for name, of in gains().items()
    ]


def _images() -> str:
    knn, linear = accuracies("knn"), accuracies("linear")
    lines = [[name, _spread(knn[name][8], 1), _spread(linear[name][8], 1)] for name in METHOD_CELLS]
    return grid(["method", "nearest neighbours", "linear probe"], lines)


def _uses() -> str:
    """The objectives by the inputs that they support."""
    alike = defaultdict(list)
    for name in ours():
        objective = registry.build(name)
        takes = (
            "yes" if objective.takes_negatives else "-",
            "inputs" if objective.pairwise else "coordinates, or pulls only",
            ", ".join(objective.presets) or "-",
        )
        alike[takes].append(f"[`{name}`](../objectives/{name}.md)")
    lines = [[", ".join(names), *takes] for takes, names in sorted(alike.items(), reverse=True)]
    return grid(["objectives", "hard negatives", "compares", "presets"], lines)


def _printed() -> str:
    """The average of seven STS tasks that two papers print of each objective."""
    tables = (
        (printed("unified-gradient", "table3"), "Avg"),
        (printed("align-uniform", "table1"), "STS"),
    )
    lines = []
    for name in ours():
        row = f"bert-base/{name}"
        values = [
            f"{table.rows[row][table.columns.index(column)]:.2f}" if row in table.rows else "-"
            for table, column in tables
        ]
        if set(values) != {"-"}:
            lines.append([f"`{name}`", *values])
    return grid(["objective", "Li et al. 2024", "Nie et al. 2023"], lines)


def picture() -> bytes:
    """Return what was measured of text and images, as SVG."""
    gained, knn = gains(), accuracies("knn")
    names = list(gained)
    means = [float(np.mean(gained[name])) for name in names]
    text = Series("", names, means, [float(np.std(gained[name], ddof=1)) for name in names])
    images = [
        Series(name, sorted(of), [float(np.mean(of[epoch])) for epoch in sorted(of)])
        for name, of in knn.items()
    ]
    panels = [
        Chart("Text: gain in MRR@10", [text], y="gain, mean of 3 seeds", kind="bars"),
        Chart("Images: kNN accuracy", images, x="epoch", y="kNN, %",
              marks={"raw pixels": PIXELS}),
    ]  # fmt: skip
    return charts(panels, columns=2).svg


def main() -> None:
    """Write all pages and the table."""
    write_pages(ours(), ROOT / "docs" / "objectives")
    write_method_pages(map(find_method, METHODS), ROOT / "docs" / "methods")
    for file in DIAGNOSES:
        file.write_text(with_limit(file.read_text(encoding="utf-8"), DECIDING), encoding="utf-8")
    write_command_pages(ROOT / "docs" / "commands")
    write_text_options(ROOT / "src" / "isotrope" / "training" / "text_options.py")
    write_diagnosis_pages(ROOT / "docs", RESULTS / "zoo.csv")
    write_question_page(ROOT / "docs", RESULTS / "questions.csv")
    write_errata_page(ROOT / "docs")
    write_replication_page(ROOT / "docs")
    (GUIDE / "measured.svg").write_bytes(picture())
    file = GUIDE / "choose.md"
    file.write_text(choose(file.read_text(encoding="utf-8")), encoding="utf-8")
    file = GUIDE / "anatomy.md"
    file.write_text(columns_of(file.read_text(encoding="utf-8")), encoding="utf-8")
    SKILL.write_text(skill(SKILL.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
