"""``isotrope spectrum``: the Hessian's eigenvalues of a run's objective at its checkpoint."""

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrope.cli.arguments import Parser
from isotrope.cli.table import table
from isotrope.core.errors import MissingExtra
from isotrope.core.progress import bar

if TYPE_CHECKING:
    from isotrope.diagnostics.curvature import Compared
    from isotrope.reports.surfaces import Picture
    from isotrope.training.spectrum import RunSpectra, SpectrumSettings

EPILOG = """\
examples:
  isotrope spectrum runs/mio
  isotrope spectrum runs/mio --seeds 0 1 2 --probes 3
  isotrope spectrum runs/mio --checkpoint runs/mio/checkpoints/step-{0,500,1000}.ckpt
  isotrope spectrum runs/resnet18 runs/resnet9 --batch-size 64
  isotrope spectrum runs/mio --by embeddings

The Hessian is that of the run's objective on batches that came next, by all parameters that are
trained, heads included, with crops and dropout masks that stay, batch statistics and no weight
decay, unless flags say otherwise. What the objective or the method holds constant (stopped
gradients, moving averages, a queue) is constant. Weights are those of the newest checkpoint (train
with --keep-every to have that of the last step, and others); of a run that kept none, the saved
encoder's, without a head. --by embeddings takes the loss of a batch as a function of the raw
embeddings that the objective sees, without the network that made them.

100 iterations take 100 products, of about three gradients each. Ctrl-C at any time: the same
command goes on. Everything is written to RUN/spectrum.
"""
_ESCAPES = 5  # directions listed at most
# in the table: heading and name
_SHOWN = (
    ("lambda_max", "lambda_max"),
    ("lambda_min", "lambda_min"),
    ("negative", "negative"),
    ("flat", "flat"),
    ("trace", "trace"),
    ("loss", "loss"),
    ("gradient norm", "gradient_norm"),
)


def run(arguments: Sequence[str]) -> int:
    """Parse, compute, write numbers and picture, print a table and its interpretation."""
    options, places = _parsed(arguments)
    from isotrope.paradigm import registry
    from isotrope.training.spectrum import SpectrumSettings, measure

    for plugin in options.plugin:
        registry.load_plugin(plugin)
    settings = SpectrumSettings(
        iterations=options.iterations,
        probes=options.probes,
        batches=options.batches,
        seeds=tuple(options.seeds),
        batch_size=options.batch_size,
        batch_norm=options.batch_norm,
        weight_decay=options.weight_decay,
        keep_graph=options.keep_graph,
        threshold=options.threshold,
        optimum=options.optimum,
        by=options.by,
        device=options.device,
    )
    results = []
    products = len(places) * settings.products
    shown = options.progress and not options.json
    with bar(products, "spectrum", "products", show=shown) as progress:
        for folder, file in places:
            results.append(measure(folder, settings, file=file, progress=progress, tell=_warn))
    compared = _compared(results) if settings.by == "parameters" else None
    files = _write(results, settings, options.width)
    if options.json:
        print(json.dumps(_json(results, compared, files), ensure_ascii=False))
        return 0
    print(_text(results, settings, compared), end="\n\n")
    print(*files, sep="\n")
    return 0


def _parser() -> Parser:
    """Return the parser of this verb's flags."""
    parser = Parser(
        prog="isotrope spectrum",
        description="The eigenvalues of the Hessian of a run's objective, by Lanczos: extremes "
        "with error bounds,\ncounts, density, and whether this is a minimum (Manna et al., 2023, "
        "figures 2 to 6).",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", type=Path, help="run folder; two are compared")
    add(
        "--checkpoint",
        metavar="FILE",
        action="extend",
        nargs="+",
        default=[],
        type=Path,
        help="of one run (--keep-every in training)",
    )
    add(
        "--by",
        choices=("parameters", "embeddings"),
        default="parameters",
        help="what the loss is a function of [parameters]",
    )
    add("--iterations", metavar="N", type=int, default=100, help="of Lanczos [100]")
    add("--probes", metavar="N", type=int, default=1, help="start vectors, for the density [1]")
    add("--batches", metavar="N", type=int, default=1, help="whose mean is the objective [1]")
    add("--seeds", metavar="S", type=int, nargs="+", default=[0], help="other batches each [0]")
    add("--batch-size", metavar="N", type=int, help="[the run's]")
    add(
        "--batch-norm",
        choices=("batch", "running"),
        default="batch",
        help="statistics of the batch, as in training, or the running ones [batch]",
    )
    add("--weight-decay", action="store_true", help="add the run's to the diagonal")
    add(
        "--keep-graph",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep the gradient's graph: faster; without it, less memory [keep]",
    )
    add("--threshold", metavar="X", type=float, default=1.0, help="flat: from 0 to this [1]")
    add("--optimum", metavar="L", type=float, help="lowest loss, for rates of convergence")
    add("--width", metavar="X", type=float, help="of the density's Gaussians [range / 200]")
    add(
        "--plugin",
        metavar="FILE",
        action="append",
        default=[],
        type=Path,
        help="with the run's objective: code that only the run's settings name is not run",
    )
    add("--device", default="auto", metavar="auto|cpu|cuda|mps", help="[auto]")
    add("--progress", action=argparse.BooleanOptionalAction, default=True, help="show a bar")
    add("--json", action="store_true", help="print JSON and nothing else")
    return parser


def _parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[tuple[Path, Path | None]]]:
    """Return the flags, and each run folder with its checkpoint."""
    parser = _parser()
    options = parser.parse_args(list(arguments))
    if options.checkpoint and len(options.runs) > 1:
        parser.error("--checkpoint is for a single run: its files are told apart by no other")
    if options.batch_size is not None and options.batch_size < 2:
        parser.error(f"--batch-size must be 2 or more; found {options.batch_size}")
    if options.width is not None and not 0 < options.width < math.inf:
        parser.error(f"--width must be above 0 and finite; found {options.width:g}")
    if options.checkpoint:
        return options, [(options.runs[0], file) for file in options.checkpoint]
    return options, [(folder, None) for folder in options.runs]


def _warn(line: str) -> None:
    print(f"isotrope: {line}", file=sys.stderr)


def _compared(results: "Sequence[RunSpectra]") -> "Compared | None":
    """Compare two networks of different sizes by the hypotheses of Manna et al. 2023, section 4."""
    from isotrope.diagnostics.curvature import compare

    first = [one.spectra[0] for one in results]
    if len(first) != 2 or first[0].size == first[1].size:
        return None
    return compare(*first)


def _write(
    results: "Sequence[RunSpectra]", settings: "SpectrumSettings", width: float | None
) -> list[Path]:
    """Write numbers and picture of each, and a picture of all; return the paths."""
    from isotrope.core.files import atomic_replace
    from isotrope.training.spectrum import as_csv

    files: list[Path] = []
    for result in results:
        by = "" if settings.by == "parameters" else f"-{settings.by}"
        base = result.folder / f"step-{result.result.metrics['step']}{by}"
        picture = _picture([result], width)
        contents = {
            "json": result.result.to_json().encode(),
            "csv": as_csv(result, settings.seeds).encode(),
            "svg": picture.svg,
            "png": picture.png,
        }
        paths = [base.with_name(f"{base.name}.{suffix}") for suffix in contents]
        with contextlib.ExitStack() as stack:
            for path, content in zip(paths, contents.values(), strict=True):
                stack.enter_context(atomic_replace(path)).write_bytes(content)
        files += paths
    if len(results) > 1:
        picture = _picture(results, width)
        for suffix, content in (("svg", picture.svg), ("png", picture.png)):
            by = "" if settings.by == "parameters" else f"-{settings.by}"
            path = results[0].folder / f"comparison{by}.{suffix}"
            with atomic_replace(path) as temporary:
                temporary.write_bytes(content)
            files.append(path)
    return files


def _picture(results: "Sequence[RunSpectra]", width: float | None) -> "Picture":
    try:
        from isotrope.reports.spectra import DensityCurve, spectra
    except ImportError as error:
        raise MissingExtra("matplotlib", extra="report") from error
    from isotrope.diagnostics.curvature import density, grid

    several = [[ritz for s in result.spectra for ritz in s.probes] for result in results]
    all_ritz = [ritz for probes in several for ritz in probes]
    if width is None:
        low = min(float(ritz.values[0]) for ritz in all_ritz)
        high = max(float(ritz.values[-1]) for ritz in all_ritz)
        width = (high - low) / 200 or 1.0
    positions = grid(all_ritz, width=width)
    return spectra(
        [
            DensityCurve(
                result.name, positions, density(probes, positions, width=width), probes[0].values
            )
            for result, probes in zip(results, several, strict=True)
        ]
    )


def _json(
    results: "Sequence[RunSpectra]", compared: "Compared | None", files: Sequence[Path]
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "spectra": [json.loads(result.result.to_json()) for result in results],
        "compared": None if compared is None else asdict(compared),
        "files": [str(file) for file in files],
    }


def _text(
    results: "Sequence[RunSpectra]", settings: "SpectrumSettings", compared: "Compared | None"
) -> str:
    """Return the printed text: the function, the table, and its interpretation."""
    blocks = [_function_line(result, settings) for result in results]
    header = ["", *(name for name, _ in _SHOWN)]
    rows = []
    for result in results:
        spread = result.result.details["spread"]
        for kind in ("mean", "min", "max") if len(settings.seeds) > 1 else ("mean",):
            name = result.name if kind == "mean" else f"  {kind} of {len(settings.seeds)} seeds"
            rows.append([name, *(f"{spread[key][kind]:.4g}" for _, key in _SHOWN)])
    blocks.append(table(header, rows))
    ritz = results[0].result.metrics["ritz_values"]
    blocks.append(
        f"negative, flat: of {ritz:.0f} Ritz values those below 0 and those from 0 to "
        f"{settings.threshold:g}"
    )
    blocks += [_interpretation(result) for result in results]
    if compared is not None:
        blocks.append(
            f"{compared.verdict}\n"
            f"  estimated eigenvalues, larger and smaller network: not positive "
            f"{compared.not_positive[0]:,.0f} and {compared.not_positive[1]:,.0f}, positive "
            f"{compared.positive[0]:,.0f} and {compared.positive[1]:,.0f}\n"
            f"  Ritz values, not positive + positive: {_sum(compared.ritz[0])} and "
            f"{_sum(compared.ritz[1])} (they add up to the iterations: no evidence)"
        )
    return "\n\n".join(blocks)


def _sum(pair: tuple[float, float]) -> str:
    return f"{pair[0]:g} + {pair[1]:g}"


def _function_line(result: "RunSpectra", settings: "SpectrumSettings") -> str:
    about, size = result.result.details["hessian"], result.result.metrics["parameters"]
    batches = "1 batch" if settings.batches == 1 else f"{settings.batches} batches"
    decay = (
        f"weight decay {about['weight_decay']:g}" if settings.weight_decay else "no weight decay"
    )
    if settings.by == "embeddings":
        free, decay = f"{size:,.0f} numbers in its embeddings", "each embedding free"
    else:
        free = f"{size:,.0f} parameters"
    return (
        f"{result.name} of {about['steps']:,}: {about['objective']} by {about['method']}, "
        f"{about['encoder']}, {free}\n"
        f"  weights {about['weights']}; head {about['head']}\n"
        f"  {batches} of {about['batch_size']}; batch norm: {about['batch_norm']}; {decay}"
    )


def _interpretation(result: "RunSpectra") -> str:
    details, metrics = result.result.details, result.result.metrics
    rate = details["learning_rate"]
    steps = [f"  at this step, {rate['verdict']}", f"  at the peak, {rate['verdict_of_peak']}"]
    of_parameters = (
        details["hessian"]["asked"]["by"] == "parameters"
    )  # only these have a learning rate
    lines = [
        f"{result.name}: {details['verdict']}",
        *(steps if of_parameters else ()),
        f"  estimated eigenvalues: {metrics['eigenvalues_not_positive']:,.0f} not positive, "
        f"{metrics['eigenvalues_positive']:,.0f} positive; trace {metrics['trace']:.4g} "
        f"(error {metrics['trace_error']:.2g})",
    ]
    if of_parameters and details["hessian"]["optimizer"] != "sgd":
        lines.append(
            f"  these bounds are plain gradient descent's; {details['hessian']['optimizer']} "
            "scales its steps"
        )
    if (descent := details.get("descent")) is not None:
        proxy = "none" if descent["proxy"] is None else f"{descent['proxy']:.6g}"
        lines.append(
            f"  towards a loss of {descent['optimum']:g}: mean rate {proxy} over "
            f"{len(descent['positive'])} positive directions"
        )
        steepest = descent["escape"][:_ESCAPES]
        listed = ", ".join(f"{d['value']:.3g} (slope {abs(d['slope']):.2g})" for d in steepest)
        lines.append(f"  {len(descent['escape'])} directions of escape, steepest first: {listed}")
    return "\n".join(lines)
