"""Table 4: cut-initialization of MoCo v2 and v3, and of DINO, which must not gain by it."""

from typing import Any

from papers.draganov2024.logged import format_spread, last, listed, verdict
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.recipes import image_jobs
from papers.machinery.verdicts import ahead, negated
from papers.paper_numbers import printed

NAMES = {"mocov2": "MoCo v2", "mocov3": "MoCo v3", "dino": "DINO"}
CUTS = (1, 3)
ENCODER = {"mocov2": "resnet50", "mocov3": "vit-small", "dino": "vit-small"}
"""The paper's; of MoCo v3 it says so, of DINO we take the same."""
RUN: dict[Scale, tuple[str, ...]] = {
    "smoke": ("mocov2", "dino"),
    "cpu": (),
    "paper": ("mocov2", "mocov3", "dino"),
}


def trained(scale: Scale, name: str, c: int) -> list[PaperJob]:
    """Return one method with one cut-constant."""
    if name not in RUN[scale]:
        return []
    settings: dict[str, Any] = {} if c == 1 else {"cut": c}
    if scale == "paper":
        settings |= {
            "data": "imagenet100",
            "encoder": ENCODER[name],
            "epochs": 100,
            "knn_every": 10,
        }
    return image_jobs(scale, name, **settings)


def jobs(scale: Scale) -> list[PaperJob]:
    """All that are run at a scale."""
    return [job for name in NAMES for c in CUTS for job in trained(scale, name, c)]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the table and one verdict for each method."""
    paper = printed("cosine-pitfalls", "table4")
    rows, verdicts = [], []
    for name, title in NAMES.items():
        knn = {c: last(results, trained(scale, name, c), "knn") for c in CUTS}
        for c in CUTS:
            printed_values = [f"{value}" for value in paper.rows[f"{name}/c={c}"]]
            rows.append([f"{title}, c = {c}", *printed_values, format_spread(knn[c])])
        gains = ahead(knn[3], knn[1])
        evidence = listed({f"c = {c}:": format_spread(knn[c]) for c in CUTS})
        if name == "dino":
            claim = "DINO, whose objective is no function of the cosine, gains nothing by the cut"
            verdicts.append(verdict(claim, [negated(gains)], evidence))
        else:
            verdicts.append(verdict(f"{title} gains by weights divided by 3", [gains], evidence))
    header = ["", "paper: top-1", "paper: top-5", "ours: top-1"]
    return Rendered(tables=[Sheet(header, rows)], verdicts=verdicts, notes=_notes(scale))


def _notes(scale: Scale) -> list[str]:
    if scale == "cpu":
        return [
            "Not run: after the few hundred steps of this scale DINO's teacher and MoCo's queue of "
            "4,096 have hardly begun to mean something, and a control that has not learnt controls "
            "nothing. Table 3 has what a cut does to the other methods.",
        ]
    if scale == "paper":
        return [
            "MoCo v2 is on ResNet-50, the others on ViT-S; batch 128 and the recipes of their own "
            "papers, which are not printed here. kNN is the top-1; `isotrope evaluate --knn` "
            "has the top-5 of a saved run.",
        ]
    return ["MoCo v2 and DINO alone, both on a small ResNet."]


ARTIFACT = Artifact(
    title="table 4: cut-initialization of MoCo, and of DINO as a control", jobs=jobs, render=render
)
