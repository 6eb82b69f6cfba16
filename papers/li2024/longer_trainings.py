"""Longer trainings of the losses whose claims of table 3 fail at cpu scale: four times as long.

A hundred steps may be too few to tell an effective loss from one that only begins well. So the
originals, their modified forms and InfoNCE are trained once more, 400 steps on sentences of which
none comes twice, as the paper trains a single pass. One seed: it is the trend that is asked for.
"""

from typing import Any

from papers.li2024.backbone_results import BackboneResults
from papers.li2024.losses import BERT, EFFECTIVE, MODIFIED, ORIGINAL, TableLoss
from papers.machinery.artifact import Scale, Table
from papers.machinery.job import PaperJob
from papers.machinery.over_seeds import format_change, format_spread, metric_by_step
from papers.machinery.recipes import text_jobs
from papers.machinery.verdicts import minus, spread

__all__ = ["TRIED", "longer", "tried"]

STEPS, EVERY, SIZE = 400, 100, 32
TRIED = (*ORIGINAL, *MODIFIED, EFFECTIVE[0])


def longer(scale: Scale, loss: TableLoss) -> list[PaperJob]:
    """Return the longer training with a loss: a job at cpu scale, none at others.

    The paper's own scale has no shorter one; a smoke run needs no second.
    """
    if scale != "cpu":
        return []
    settings = {**loss.tuned[BERT].values, **loss.more}
    training: dict[str, Any] = {"texts": f"wiki-short:{STEPS * SIZE}", "batch_size": SIZE}
    training |= {"max_steps": STEPS, "keep_every": EVERY, "looks": ["dev"]}
    return text_jobs(scale, loss.objective, settings, seeds=[0], **training)


def tried(of: BackboneResults) -> Table:
    """Return the dev score of each loss over the steps, and its final scores.

    Columns: the steps, STS-B dev at each; then the average of the seven STS tasks at the end,
    against the untrained encoder and against InfoNCE.
    """
    steps = range(0, STEPS + 1, EVERY)
    first = of.end_of(longer(of.scale, EFFECTIVE[0]))
    rows: list[list[str | None]] = []
    for loss in TRIED:
        jobs = longer(of.scale, loss)
        over, last = metric_by_step(of.results, jobs, "dev"), of.end_of(jobs)
        rows.append(
            [
                loss.name,
                *(format_spread(over.get(step)) for step in steps),
                format_spread(spread(last.values())),
                format_change(minus(last, of.start())),
                format_change(minus(last, first)),
            ]
        )
    header = [
        "loss",
        *(f"dev {step}" for step in steps),
        "average",
        "against untrained",
        "against InfoNCE",
    ]
    title = f"tried: {STEPS} steps on {STEPS * SIZE:,} sentences, one seed (dev: of STS-B)"
    return Table(header, rows, title=title)
