"""``python -m papers bench my_loss.py``: anybody's loss, measured as those of the papers are.

The loss gets what every loss gets at its published values: four rates with one seed, then seeds
that have chosen nothing at the best of them. Its row stands below those that have been measured on
this encoder (``python -m papers text``), which were tuned over six settings too; the last column
compares all losses before that. STS is scored, transfer is not.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from isotrope.core import InputError, fingerprint
from isotrope.paradigm import as_settings, build, load_plugin
from papers import stages, text_tables
from papers import text_protocol as protocol
from papers.machinery.data_registry import RAW, DataRegistry, cache_folder
from papers.machinery.job import PaperJob
from papers.machinery.store import JobStore
from papers.text_command import check_encoder, stored
from papers.text_protocol import ProtocolLoss

_TUNED = (
    "The other losses have the best of six settings, chosen on dev on {}; yours has those you set. "
    "*dev untuned* compares all before that: 250 steps, seed 0, the best of four rates."
)


def jobs(
    encoder: str, loss: ProtocolLoss, find: protocol.Find, seeds: int, plugin: Sequence[str] = ()
) -> tuple[list[PaperJob], list[PaperJob]]:
    """Return what chooses the rate, and the seeds at that rate; none of these until it is known."""
    more = {"plugin": list(plugin)} if plugin else {}
    rates, values = protocol.rates(encoder), loss.values
    tried = {rate: protocol.short(encoder, loss, values, rate, more) for rate in rates}
    at = protocol.best(tried.items(), find)
    finals = []
    if at is not None:
        of = protocol.SEEDS[:seeds]
        finals = [protocol.final(encoder, loss, values, at, seed, more) for seed in of]
    return list(tried.values()), finals


def run(arguments: Sequence[str]) -> int:
    """Measure a loss, or what is missing of it, and print its row beside the others."""
    options = _parse(arguments)
    torch.set_num_threads(1)
    loss, plugin = _loss(options)
    code = [Path(file).read_text(encoding="utf-8") for file in plugin]
    store = JobStore(cache_folder() / "bench" / fingerprint(*code) / "cells")
    sources = DataRegistry(options.data, cache_folder() / "data")
    known = JobStore(options.output / options.encoder / "cells")
    find = stored(options.encoder, options.output, known)
    if not sources.missing_encoder(options.encoder):
        others = map(find, protocol.planned(options.encoder, find))
        check_encoder(options.encoder, others, sources, known)
    for stage in (0, 1):
        wanted = jobs(options.encoder, loss, store.find, options.seeds, plugin)
        stages.train(wanted[stage], store, options.data)
    rows = []
    for row in text_tables.final_rows(options.encoder, find):
        other = protocol.LOSSES.get(row[0])
        tried = jobs(options.encoder, other, find, 0)[0] if other else []
        rows += [[*row, text_tables.best_dev(tried, find)]] * (row[3] != "-")
    mine = text_tables.final_row(f"**{loss.name}**", wanted[1], store.find)
    rows.append([*mine, text_tables.best_dev(wanted[0], store.find)])
    header = (*text_tables.HEADER, "dev untuned")
    first = _TUNED.format(protocol.tuned_on(options.encoder))
    print(first, "", *text_tables.table(header, rows), sep="\n")
    return 0


def _loss(options: argparse.Namespace) -> tuple[ProtocolLoss, list[str]]:
    """The loss that is meant, and the file that defines it, if it is no name of the library."""
    file, _, name = options.loss.partition(":")
    plugin = []
    if file.endswith(".py"):
        plugin = [str(Path(file).resolve())]
        added = load_plugin(Path(file))
        if not name and len(added) > 1:
            raise InputError(f"{file} defines {', '.join(added)}: choose one, {file}:{added[0]}")
        name = name or added[0]
    name = name or file
    values = build(name, dict(_setting(text) for text in options.set))
    return ProtocolLoss(name, name, as_settings(values)[1]), plugin


def _setting(text: str) -> tuple[str, float | str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set takes NAME=VALUE, such as temperature=0.1; found {text!r}")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = stages.parser(
        "bench",
        "Measure a loss by the protocol of the papers, on a raw encoder: 20 minutes of one core.",
        "text",
    )
    add = parser.add_argument
    add("loss", metavar="FILE[:NAME]|NAME", help="a file with an objective, or one of the library")
    add("--set", nargs="+", default=[], metavar="NAME=VALUE", help="its hyperparameters")
    add("--seeds", type=int, default=5, choices=range(1, 6), metavar="N", help="of 1 to 5 [5]")
    add("--encoder", default=RAW, metavar="NAME", help="[%(default)s]")
    return parser.parse_args(list(arguments))
