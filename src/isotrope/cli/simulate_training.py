"""``isotrope simulate convergence`` and ``latent``: the simulations that train embeddings."""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrope.cli.arguments import Parser, dotted
from isotrope.cli.output import write_files
from isotrope.cli.table import table
from isotrope.core.errors import MissingExtra
from isotrope.core.progress import bar

if TYPE_CHECKING:
    from isotrope.diagnostics.latent import LatentSnapshot
    from isotrope.diagnostics.simulation.convergence import Convergence
    from isotrope.reports.convergence import PlanePairs, StepsOverNorm
    from isotrope.reports.surfaces import Picture

# the kinds of simulation that train, and have their own parser
TRAINED = {
    "convergence": "steps that embeddings take to their positives (Draganov et al. 2024, figure 2)",
    "latent": "pairs of images in two dimensions, in training (Draganov et al. 2024, figure 4)",
}
EPILOGS = {
    "convergence": """\
examples:
  isotrope simulate convergence
  isotrope simulate convergence --objective infonce --objective.temperature 1 --grid 5
  isotrope simulate convergence --objective myloss --plugin my_loss.py --grid 5 --steps 500

500 random pairs in 20 dimensions are trained themselves, by gradient descent on both views, until
their mean cosine exceeds 0.999; from embeddings of different norms, and from pairs at different
angles. Without --objective it is the paper's cosine, beside the steps that its theorem 3.3 asks for
at least. Writes convergence.png, convergence.svg and convergence.csv.
""",
    "latent": """\
examples:
  isotrope simulate latent
  isotrope simulate latent --epochs 128
  isotrope simulate latent --data cifar10/ --limit 1000
  isotrope simulate latent --objective mpt

SimCLR and BYOL are trained on small images, with two dimensions for the objective to see: as they
are, with cut-initialization, SimCLR with a large weight decay, BYOL without batch norm in heads.
A line joins the two views of each of 256 images: red opposite, blue together. With --objective:
SimCLR alone, with it. Writes latent.png, latent.svg, latent.csv (norms and angles after every
epoch), latent-pairs.csv (the pairs drawn), latent-norms.png and latent-norms.svg.
""",
}
_LIMITS = (20_000, 1000)  # of steps, where rows are independent and where they are compared
_GRID = 5


def run(kind: str, arguments: Sequence[str]) -> int:
    """Parse, train, write pictures and numbers, print a short table."""
    flags, others = dotted(arguments, "objective")
    settings = {flag.removeprefix("objective."): value for flag, value in flags.items()}
    options = _parsed(kind, others, settings)
    from isotrope.paradigm import registry

    for plugin in options.plugin:
        registry.load_plugin(plugin)
    if kind == "latent":
        return _latent(options, settings)
    return _convergence(options, settings)


def _parsed(kind: str, arguments: Sequence[str], settings: dict[str, str]) -> argparse.Namespace:
    parser = Parser(
        prog=f"isotrope simulate {kind}",
        description=f"{TRAINED[kind][:1].upper()}{TRAINED[kind][1:]}.",
        epilog=EPILOGS[kind],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--objective", metavar="NAME", help="only this; settings as --objective.SETTING VALUE")
    add("--plugin", metavar="FILE", action="append", default=[], type=Path, help="with objectives")
    add("--output", metavar="DIR", type=Path, default=Path("simulation"), help="[simulation]")
    add("--seed", metavar="N", type=int, default=0, help="of all draws [0]")
    if kind == "convergence":
        add("--pairs", metavar="N", type=int, default=500, help="of embeddings [500]")
        add("--dimension", metavar="D", type=int, default=20, help="of the embeddings [20]")
        rate = "learning rate of the mean of the losses [10]"
        add("--rate", metavar="X", type=float, default=10.0, help=rate)
        add("--target", metavar="X", type=float, default=0.999, help="mean cosine [0.999]")
        steps = "a start is given up after [20000; 1000 where the objective compares rows]"
        add("--steps", metavar="N", type=int, help=steps)
        grid = "norms, and angles [13 and 49; 5 each where the objective compares rows]"
        add("--grid", metavar="N", type=int, help=grid)
    else:
        add("--data", metavar="DATA", default="digits", help="images, as of train-images [digits]")
        add("--limit", metavar="N", type=int, default=2000, help="most training images [2000]")
        add("--epochs", metavar="N", type=int, default=16, help="of each run [16]")
    add("--json", action="store_true", help="print JSON and nothing else")
    options = parser.parse_args(list(arguments))
    if kind == "convergence" and options.steps is not None and options.steps < 1:
        parser.error(f"--steps must be 1 or more; found {options.steps}")
    if settings and not options.objective:
        parser.error(f"--objective.{next(iter(settings))} needs --objective NAME")
    return options


def _convergence(options: argparse.Namespace, settings: Mapping[str, str]) -> int:
    from isotrope.diagnostics.simulation import convergence as simulation
    from isotrope.paradigm.registry import build

    objective = build(options.objective or "negativecosine", settings)
    title = _title(options, settings) if options.objective else type(objective).__name__
    limit = _LIMITS[objective.pairwise] if options.steps is None else options.steps
    protocol = simulation.ConvergenceProtocol(
        pairs=options.pairs,
        dimension=options.dimension,
        rate=options.rate,
        target=options.target,
        limit=limit,
        seed=options.seed,
    )
    norms, angles = simulation.NORMS, simulation.ANGLES
    if options.grid is not None or objective.pairwise:
        norms, angles = simulation.grid(_GRID if options.grid is None else options.grid)
    with bar(len(norms) + len(angles), "convergence", show=not options.json) as progress:
        results = simulation.convergence(objective, (*norms, *angles), protocol, progress=progress)
    by_norm, by_angle = results[: len(norms)], results[len(norms) :]
    picture = _steps_picture(title, by_norm, by_angle, limit)
    csv_bytes = simulation.as_csv([(title, results)]).encode()
    contents = {"png": picture.png, "svg": picture.svg, "csv": csv_bytes}
    files = write_files(options.output, {f"convergence.{kind}": x for kind, x in contents.items()})
    if options.json:
        starts = [dict(zip(_HEADER, _convergence_row(one), strict=True)) for one in results]
        return _json(options, "convergence", title, settings, {"starts": starts}, files)
    shown = [*by_norm, *by_angle[:: max(1, len(by_angle) // 8)]]
    table_rows = [
        ["-" if x is None else f"{x:.4g}" for x in _convergence_row(one)] for one in shown
    ]
    print(
        f"{title}: steps until the mean cosine of {options.pairs} pairs exceeds "
        f"{options.target:g}, at most {limit:,};\ngrowth is that of the norm, and theorem 3.3 "
        f"asks for as many steps at least:\n\n{table(_HEADER, table_rows)}\n"
    )
    print(*files, sep="\n")
    return 0


_HEADER = ["norm", "angle", "steps", "theorem", "cosine", "growth"]


def _convergence_row(one: "Convergence") -> list[float | None]:
    return [one.start.norm, one.angle, one.steps, one.at_least, one.cosine, one.growth]


def _steps_picture(
    title: str, norms: "Sequence[Convergence]", angles: "Sequence[Convergence]", limit: int
) -> "Picture":
    import numpy as np

    try:
        from isotrope.reports.convergence import StepsOverNorm, steps_over
    except ImportError as error:
        raise MissingExtra("matplotlib", extra="report") from error

    def line(results: "Sequence[Convergence]", x: list[float]) -> "StepsOverNorm":
        steps, least = (
            np.array([math.nan if n is None else n for n in numbers], dtype=np.float64)
            for numbers in ([one.steps for one in results], [one.at_least for one in results])
        )
        return StepsOverNorm(title, np.array(x), steps, least)

    return steps_over(
        [line(norms, [one.start.norm for one in norms])],
        [line(angles, [one.angle for one in angles])],
        limit,
    )


def _latent(options: argparse.Namespace, settings: Mapping[str, str]) -> int:
    from isotrope.training.latent import byol_cells, latent, simclr_cells

    if options.objective:
        trainings = simclr_cells(options.objective, settings)
    else:
        trainings = simclr_cells() | byol_cells()
    with bar(
        len(trainings) * max(options.epochs, 0), "latent", "epochs", show=not options.json
    ) as progress:
        runs = latent(
            trainings,
            options.data,
            epochs=options.epochs,
            limit=options.limit,
            seed=options.seed,
            progress=progress,
        )
    at = sorted({0, 1, max(1, options.epochs // 4), options.epochs})
    shown = {name: [snapshots[epoch] for epoch in at] for name, snapshots in runs.items()}
    files = write_files(options.output, _latent_files(runs, shown))
    rows = [
        {"run": name, "epoch": snapshot.epoch, **snapshot.measures()}
        for name, snapshots in shown.items()
        for snapshot in snapshots
    ]
    if options.json:
        title = _title(options, settings) if options.objective else None
        return _json(options, "latent", title, settings, {"looks": rows}, files)
    head = ["run", "epoch", "norm", "angle", "> pi/2", "> 7 pi/8", "on a line"]
    table_rows = [
        [f"{x:.3g}" if isinstance(x, float) else str(x) for x in row.values()] for row in rows
    ]
    print(
        "Mean norm, mean angle of the pairs, shares of pairs further apart than two angles, and "
        "how much all lies\non one line through the origin (1: all, 0: all around):\n\n"
        f"{table(head, table_rows)}\n"
    )
    print(*files, sep="\n")
    return 0


def _latent_files(
    runs: "Mapping[str, Sequence[LatentSnapshot]]", shown: "Mapping[str, Sequence[LatentSnapshot]]"
) -> dict[str, bytes]:
    from isotrope.diagnostics.latent import course_csv, pairs_csv

    plane, norms = _latent_pictures(runs, shown)
    return {
        "latent.png": plane.png,
        "latent.svg": plane.svg,
        "latent-norms.png": norms.png,
        "latent-norms.svg": norms.svg,
        "latent.csv": course_csv(runs).encode(),
        "latent-pairs.csv": pairs_csv(shown).encode(),
    }


def _latent_pictures(
    runs: "Mapping[str, Sequence[LatentSnapshot]]", shown: "Mapping[str, Sequence[LatentSnapshot]]"
) -> "tuple[Picture, Picture]":
    try:
        from isotrope.reports.convergence import PlanePairs, pairs_in_plane
        from isotrope.reports.epochs import Course, courses
    except ImportError as error:
        raise MissingExtra("matplotlib", extra="report") from error

    def pairs(snapshot: "LatentSnapshot") -> "PlanePairs":
        return PlanePairs(
            snapshot.epoch,
            snapshot.anchors.numpy(),
            snapshot.positives.numpy(),
            snapshot.cosines.numpy(),
        )

    def course(snapshots: "Sequence[LatentSnapshot]", measure: str) -> "Course":
        return Course(
            [one.epoch for one in snapshots], [one.measures()[measure] for one in snapshots]
        )

    panels = {"norm": "norm", "angle": "angle of the pairs", "opposite_halves": "opposite halves"}
    norms = courses(
        {
            label: {name: course(snapshots, measure) for name, snapshots in runs.items()}
            for measure, label in panels.items()
        },
        logarithmic=["norm"],
    )
    return pairs_in_plane({k: [pairs(one) for one in v] for k, v in shown.items()}), norms


def _title(options: argparse.Namespace, settings: Mapping[str, str]) -> str:
    from isotrope.paradigm import registry

    name = registry.find(options.objective).__name__
    return ", ".join([name, *(f"{key} {value}" for key, value in settings.items())])


def _json(
    options: argparse.Namespace,
    kind: str,
    title: str | None,
    settings: Mapping[str, str],
    content: dict[str, Any],
    files: Sequence[Path],
) -> int:
    record = {"kind": kind, "objective": title, "settings": dict(settings), "seed": options.seed}
    print(json.dumps({**record, **content, "files": [str(f) for f in files]}, ensure_ascii=False))
    return 0
