"""``python -m papers text``: the protocol for sentence embeddings by stages, and its claims."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from isotrope.core import InputError, Result, write_text
from isotrope.encoders import SentenceEncoder
from papers import stages
from papers import text_protocol as protocol
from papers.machinery.claims import Claim, claims, judge_claim
from papers.machinery.data_registry import RAW, DataRegistry, cache_folder
from papers.machinery.rule import ClaimJudgement
from papers.machinery.store import JobStore
from papers.text_tables import table, tables

RESULTS = stages.RESULTS / "text"


def run(arguments: Sequence[str]) -> int:
    """Do what is missing of the stages, in order, and write what became of the claims."""
    options = _parse(arguments)
    if not options.data.is_dir():
        raise InputError(f"--data: there is no folder {options.data}")
    torch.set_num_threads(1)
    output = options.output / options.encoder
    store = JobStore(output / "cells")
    find = stored(options.encoder, options.output, store)
    try:
        if not options.show:
            _train(options, store, find)
    finally:
        for name, page in {"tables.md": tables, "claims.md": _claims}.items():
            write_text(output / name, page(options.encoder, find))
            print(output / name)
    return 0


def _train(options: argparse.Namespace, store: JobStore, find: protocol.Find) -> None:
    """Train the stages that are asked for, up to one that does not come to its end."""
    sources = DataRegistry(options.data, cache_folder() / "data")
    for stage, names in protocol.schedule(options.encoder):
        if options.stages and stage not in options.stages:
            continue
        jobs = protocol.jobs(stage, options.encoder, find, names or tuple(protocol.LOSSES))
        if any(store.find(job) is None for job in jobs):
            check_encoder(options.encoder, map(store.find, jobs), sources, store)
        what = f"{names[0]} to {names[-1]}: " if names else ""
        stages.say(f"stage {stage}: {what}{len(dict.fromkeys(jobs))} trainings")
        minutes, processes = options.minutes, options.jobs
        if not stages.train(jobs, store, options.data, minutes=minutes, processes=processes):
            break  # what comes next depends on it


def stored(encoder: str, results: Path, store: JobStore | None = None) -> protocol.Find:
    """Return what gives the results on an encoder, and those by which its settings were chosen."""
    stores = {
        name: JobStore(results / name / "cells") for name in (protocol.tuned_on(encoder), encoder)
    }
    if store is not None:
        stores[encoder] = store
    return lambda job: stores[job.settings["encoder"]].find(job)


def check_encoder(
    name: str, results: Iterable[Result | None], sources: DataRegistry, store: JobStore
) -> None:
    """Refuse to put trainings of two encoders that share a name beside each other."""
    details = [result.details for result in results if result is not None]
    stored = {str(of["encoder"]) for of in details if "encoder" in of}
    if not stored:
        return
    here = SentenceEncoder.load(sources.encoder(name), pooling="cls", device="cpu").fingerprint()
    if stored != {here}:
        raise InputError(
            f"{name} is another encoder here ({here}) than the one whose trainings are in "
            f"{store.folder} ({', '.join(sorted(stored))}); it may have been made on another "
            f"kind of processor: choose --encoder {RAW}, whose weights are in the repository"
        )


def _claims(encoder: str, find: protocol.Find) -> str:
    """Every claim: the paper's effect, ours with its interval, the verdict."""
    lines = [
        f"# Claims on sentence embeddings, measured on {encoder}",
        "",
        "Written by `python -m papers text`. Differences over seeds with Student's 90% interval; "
        "with the 95% interval where n is 15: there five seeds left the claim undecided.",
        "",
        *_table(_judged(encoder, find)),
    ]
    return "\n".join(lines) + "\n"


def _judged(encoder: str, find: protocol.Find) -> list[tuple[Claim, ClaimJudgement]]:
    values = protocol.measured(encoder, find)
    return [(claim, judge_claim(claim, values)) for claim in claims() if claim.on == "text"]


def _table(judged: Sequence[tuple[Claim, ClaimJudgement]]) -> list[str]:
    rows = []
    for claim, judgement in judged:
        printed_effect = f"{claim.effect:+.2f}" if claim.printed else "-"
        measured, count = "-", "0"
        if judgement.change is not None:
            low, high = judgement.interval
            measured, count = f"{judgement.change.mean:+.2f}", str(judgement.change.count)
            measured += f" ({low:+.2f} to {high:+.2f})" if judgement.change.count > 1 else ""
        where = f"{claim.paper}, {claim.where}"
        rows.append((claim.says, where, printed_effect, measured, count, judgement.word))
    return table(("claim", "where", "paper", "ours", "n", "verdict"), rows)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    description = "Train sixteen losses on a raw encoder by one protocol, and judge the claims."
    parser = stages.parser("text", description, "text")
    add = parser.add_argument
    add("stages", nargs="*", metavar="STAGE", help=f"{', '.join(protocol.STAGES)} [all, in order]")
    encoders = "raw-..., or disturbed or trained, which know sentences [%(default)s]"
    add("--encoder", default=RAW, metavar="NAME", help=encoders)
    add("--minutes", type=float, metavar="M", help="start no training after so many")
    add("--jobs", type=int, default=1, metavar="N", help="jobs at a time [1]")
    add("--show", action="store_true", help="run nothing: the claims by what there is")
    options = parser.parse_args(list(arguments))
    for stage in options.stages:
        if stage not in protocol.STAGES:
            raise InputError(f"stages are {', '.join(protocol.STAGES)}; found {stage!r}")
    return options
