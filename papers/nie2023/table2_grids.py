"""Table 2's grids: the search of section A.3, as trainings at the paper's scale."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from papers.li2024.losses import BERT
from papers.machinery.artifact import Artifact, Rendered, Results, Scale, Table
from papers.machinery.job import PaperJob
from papers.machinery.recipes import text_jobs
from papers.machinery.verdicts import Verdict
from papers.nie2023.losses import BACKBONES, NAMES, PAPER, tuned
from papers.paper_numbers import printed

RATES = ("learning_rate", "batch_size")
KEPT = 80_000  # sentences between two dev scores


def grid(objective: str) -> dict[str, list[float]]:
    """Return the values that section A.3 tries of each hyperparameter of a loss."""
    values_by_name = {}
    for row, values in printed(PAPER, "grid").rows.items():
        if row.startswith(f"{objective}/"):
            values_by_name[row.partition("/")[2]] = [float(v) for v in values if v is not None]
    for row, (low, high, step) in printed(PAPER, "grid-ranges").rows.items():
        if row.startswith(f"{objective}/"):
            start, width = float(low or 0), float(step or 1)
            count = round((float(high or 0) - start) / width) + 1
            values_by_name[row.partition("/")[2]] = [
                round(start + i * width, 4) for i in range(count)
            ]
    return values_by_name


def rates() -> dict[str, list[float]]:
    """Return the learning rates and batch sizes, which are those of every loss."""
    rows = printed(PAPER, "grid").rows
    return {name: [float(v) for v in rows[name] if v is not None] for name in RATES}


def searched(objective: str) -> Iterator[PaperJob]:
    """Yield both searches: rates at table 2's hyperparameters, and these at table 2's rates."""
    preset = tuned(objective)
    for rate, size in itertools.product(*rates().values()):
        yield _cell(objective, preset.values, rate, int(size))
    axes = grid(objective)
    for values in itertools.product(*axes.values()):
        values_by_name = dict(_named(name, value) for name, value in zip(axes, values, strict=True))
        changed = {**preset.values, **values_by_name}
        yield _cell(objective, changed, preset.learning_rate, preset.batch_size)


def jobs(scale: Scale) -> list[PaperJob]:
    """The searches on BERT-base, one seed, by the dev score alone; nothing below that scale."""
    if scale != "paper":
        return []
    return [job for objective in NAMES for job in searched(objective)]


def render(scale: Scale, results: Results) -> Rendered:
    """Return the grids, which optima lie in them, and the best of those that were run."""
    rows, outside = [], []
    for objective, name in NAMES.items():
        for key, tried in {**rates(), **grid(objective)}.items():
            best = _optima(objective, key)
            off = {v for v in best if not any(math.isclose(v, t) for t in tried)}
            outside += [f"{name} {key} {value:g}" for value in sorted(off)]
            optima = ", ".join(f"{value:g}" for value in best)
            rows.append([name, key, _short(tried), optima, "no" if off else "yes"])
    header = ["loss", "hyperparameter", "grid of A.3", "table 2", "all in the grid"]
    table_rows: list[list[str | None]] = [
        [name, *_best(objective, results)] if scale == "paper" else [name, None, None]
        for objective, name in NAMES.items()
    ]
    return Rendered(
        tables=[
            Table(header, rows, title=f"optima of {', '.join(BACKBONES)}"),
            Table(["loss", "best of ours", "STS-B dev"], table_rows, title="ours, BERT-base"),
        ],
        verdicts=[
            Verdict(
                "the optima of table 2 lie in the grids of section A.3",
                not outside,
                f"outside: {', '.join(outside)}" if outside else "",
            ),
            _found_again(scale, results),
        ],
        notes=[
            "read as two searches, each with the other's values at the optimum of table 2; all "
            "combinations together would be ten times as many trainings",
            "one seed, BERT-base; nothing of it is run at a smaller scale",
            *printed(PAPER, "grid-ranges").notes,
        ],
    )


def _cell(objective: str, values: Mapping[str, float | str], rate: float, size: int) -> PaperJob:
    (job,) = text_jobs(
        "paper",
        objective,
        values,
        scored=False,
        seeds=[0],
        looks=["dev"],
        learning_rate=rate,
        batch_size=size,
        keep_every=KEPT // size,
    )
    return job


def _named(name: str, value: float) -> tuple[str, float]:
    """Undo a unit: a margin over pi becomes a margin."""
    key, _, unit = name.partition(" over ")
    return key, value * math.pi if unit == "pi" else value


def _optima(objective: str, key: str) -> list[float]:
    """The values of table 2, one for each backbone."""
    return [float(value or 0) for value in printed(PAPER, "table2").rows[f"{objective}/{key}"]]


def _short(values: Sequence[float]) -> str:
    if len(values) < 6:
        return ", ".join(f"{value:g}" for value in values)
    return f"{values[0]:g} to {values[-1]:g} by {values[1] - values[0]:g}"


def _scored(objective: str, results: Results) -> dict[PaperJob, float]:
    scores = {job: results.values([job], "dev best") for job in searched(objective)}
    return {job: values[0] for job, values in scores.items() if values}


def _best(objective: str, results: Results) -> tuple[str | None, str | None]:
    scores = _scored(objective, results)
    if not scores:
        return None, None
    best = max(scores, key=lambda job: scores[job])
    names = [*RATES, *(f"objective.{name}" for name in tuned(objective).values)]
    settings = ", ".join(
        f"{name.removeprefix('objective.')} {best.settings[name]:g}" for name in names
    )
    return settings, f"{scores[best]:.2f}"


def _found_again(scale: Scale, results: Results) -> Verdict:
    """Whether table 2's values are the best of ours, for losses whose search was finished."""
    again = {}
    for objective, name in NAMES.items():
        scores = _scored(objective, results) if scale == "paper" else {}
        if scores and len(scores) == len(set(searched(objective))):
            preset = tuned(objective, BERT)
            job = _cell(objective, preset.values, preset.learning_rate, preset.batch_size)
            again[name] = scores.get(job) == max(scores.values())
    return Verdict(
        "the same search finds the values of table 2",
        all(again.values()) if again else None,
        ", ".join(f"{name} {'yes' if same else 'no'}" for name, same in again.items()),
    )


ARTIFACT = Artifact(
    title="table 2, the grids of section A.3 that its values were searched in",
    jobs=jobs,
    render=render,
)
