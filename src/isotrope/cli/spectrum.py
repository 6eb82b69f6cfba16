"""``isotrope spectrum``: the curvature of a run's objective where it stands."""

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
_ESCAPES = 5  # directions that are listed
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
    """Parse, compute, write numbers and picture, print a table and what it says."""
    given, places = _parsed(arguments)
    from isotrope.paradigm import registry
    from isotrope.training.spectrum import SpectrumSettings, measure

    for plugin in given.plugin:
        registry.load_plugin(plugin)
    asked = SpectrumSettings(
        iterations=given.iterations,
        probes=given.probes,
        batches=given.batches,
        seeds=tuple(given.seeds),
        batch_size=given.batch_size,
        batch_norm=given.batch_norm,
        weight_decay=given.weight_decay,
        keep_graph=given.keep_graph,
        threshold=given.threshold,
        optimum=given.optimum,
        by=given.by,
        device=given.device,
    )
    found = []
    products = len(places) * asked.products
    shown = given.progress and not given.json
    with bar(products, "spectrum", "products", show=shown) as progress:
        for folder, file in places:
            found.append(measure(folder, asked, file=file, progress=progress, tell=_warn))
    compared = _compared(found) if asked.by == "parameters" else None
    files = _write(found, asked, given.width)
    if given.json:
        print(json.dumps(_json(found, compared, files), ensure_ascii=False))
        return 0
    print(_text(found, asked, compared), end="\n\n")
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
    """Return the flags, and which runs at which checkpoints."""
    parser = _parser()
    given = parser.parse_args(list(arguments))
    if given.checkpoint and len(given.runs) > 1:
        parser.error("--checkpoint is for a single run: its files are told apart by no other")
    if given.batch_size is not None and given.batch_size < 2:
        parser.error(f"--batch-size must be 2 or more; found {given.batch_size}")
    if given.width is not None and not 0 < given.width < math.inf:
        parser.error(f"--width must be above 0 and finite; found {given.width:g}")
    if given.checkpoint:
        return given, [(given.runs[0], file) for file in given.checkpoint]
    return given, [(folder, None) for folder in given.runs]


def _warn(line: str) -> None:
    print(f"isotrope: {line}", file=sys.stderr)


def _compared(found: "Sequence[RunSpectra]") -> "Compared | None":
    """Two networks of different sizes, by the hypotheses of paper 004, section 4."""
    from isotrope.diagnostics.curvature import compare

    first = [one.spectra[0] for one in found]
    if len(first) != 2 or first[0].size == first[1].size:
        return None
    return compare(*first)


def _write(
    found: "Sequence[RunSpectra]", asked: "SpectrumSettings", width: float | None
) -> list[Path]:
    """Write numbers and picture of each, and a picture of all; return the paths."""
    from isotrope.core.files import atomic_replace
    from isotrope.training.spectrum import as_csv

    files: list[Path] = []
    for one in found:
        by = "" if asked.by == "parameters" else f"-{asked.by}"
        base = one.folder / f"step-{one.result.metrics['step']}{by}"
        picture = _picture([one], width)
        contents = {
            "json": one.result.to_json().encode(),
            "csv": as_csv(one, asked.seeds).encode(),
            "svg": picture.svg,
            "png": picture.png,
        }
        paths = [base.with_name(f"{base.name}.{suffix}") for suffix in contents]
        with contextlib.ExitStack() as stack:
            for path, content in zip(paths, contents.values(), strict=True):
                stack.enter_context(atomic_replace(path)).write_bytes(content)
        files += paths
    if len(found) > 1:
        picture = _picture(found, width)
        for suffix, content in (("svg", picture.svg), ("png", picture.png)):
            by = "" if asked.by == "parameters" else f"-{asked.by}"
            path = found[0].folder / f"comparison{by}.{suffix}"
            with atomic_replace(path) as temporary:
                temporary.write_bytes(content)
            files.append(path)
    return files


def _picture(found: "Sequence[RunSpectra]", width: float | None) -> "Picture":
    try:
        from isotrope.reports.spectra import DensityCurve, spectra
    except ImportError as error:
        raise MissingExtra("matplotlib", extra="report") from error
    from isotrope.diagnostics.curvature import density, grid

    several = [[ritz for s in one.spectra for ritz in s.probes] for one in found]
    every = [ritz for probes in several for ritz in probes]
    if width is None:
        low = min(float(ritz.values[0]) for ritz in every)
        high = max(float(ritz.values[-1]) for ritz in every)
        width = (high - low) / 200 or 1.0
    where = grid(every, width=width)
    return spectra(
        [
            DensityCurve(one.name, where, density(probes, where, width=width), probes[0].values)
            for one, probes in zip(found, several, strict=True)
        ]
    )


def _json(
    found: "Sequence[RunSpectra]", compared: "Compared | None", files: Sequence[Path]
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "spectra": [json.loads(one.result.to_json()) for one in found],
        "compared": None if compared is None else asdict(compared),
        "files": [str(file) for file in files],
    }


def _text(
    found: "Sequence[RunSpectra]", asked: "SpectrumSettings", compared: "Compared | None"
) -> str:
    """What a reader wants to know: of what, the numbers, what they say."""
    blocks = [_of_what(one, asked) for one in found]
    header = ["", *(name for name, _ in _SHOWN)]
    rows = []
    for one in found:
        spread = one.result.details["spread"]
        for kind in ("mean", "min", "max") if len(asked.seeds) > 1 else ("mean",):
            name = one.name if kind == "mean" else f"  {kind} of {len(asked.seeds)} seeds"
            rows.append([name, *(f"{spread[key][kind]:.4g}" for _, key in _SHOWN)])
    blocks.append(table(header, rows))
    ritz = found[0].result.metrics["ritz_values"]
    blocks.append(
        f"negative, flat: of {ritz:.0f} Ritz values those below 0 and those from 0 to "
        f"{asked.threshold:g}"
    )
    blocks += [_says(one) for one in found]
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


def _of_what(one: "RunSpectra", asked: "SpectrumSettings") -> str:
    about, size = one.result.details["hessian"], one.result.metrics["parameters"]
    batches = "1 batch" if asked.batches == 1 else f"{asked.batches} batches"
    decay = f"weight decay {about['weight_decay']:g}" if asked.weight_decay else "no weight decay"
    if asked.by == "embeddings":
        free, decay = f"{size:,.0f} numbers in its embeddings", "each embedding free"
    else:
        free = f"{size:,.0f} parameters"
    return (
        f"{one.name} of {about['steps']:,}: {about['objective']} by {about['method']}, "
        f"{about['encoder']}, {free}\n"
        f"  weights {about['weights']}; head {about['head']}\n"
        f"  {batches} of {about['batch_size']}; batch norm: {about['batch_norm']}; {decay}"
    )


def _says(one: "RunSpectra") -> str:
    details, metrics = one.result.details, one.result.metrics
    rate = details["learning_rate"]
    steps = [f"  at this step, {rate['verdict']}", f"  at the peak, {rate['verdict_of_peak']}"]
    of_parameters = details["hessian"]["asked"]["by"] == "parameters"  # what has a learning rate
    lines = [
        f"{one.name}: {details['verdict']}",
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
