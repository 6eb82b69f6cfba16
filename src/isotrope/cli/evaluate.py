"""``isotrope evaluate``: score an encoder."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from isotrope.cli.arguments import Parser
from isotrope.cli.table import table
from isotrope.core.errors import InputError

EPILOG = """\
examples:
  isotrope evaluate runs/wiki --sts DIR
  isotrope evaluate all-MiniLM-L6-v2 --sts DIR --json
  isotrope evaluate runs/p --retrieval pairs.tsv

--sts: a folder with sts12/*.tsv ... sts16/*.tsv, stsb/test.tsv, sickr/test.tsv, each line
score<TAB>sentence1<TAB>sentence2. The value is 100 x Spearman's correlation of the cosine over all
pairs of a year together ("all"), the test split of STS-B and SICK-R: the protocol of SimCSE.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, evaluate, print a table or JSON."""
    parser = Parser(
        prog="isotrope evaluate",
        description="Score a sentence encoder: a model folder, a run folder, a hub id.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--sts", metavar="DIR", type=Path, help="the seven STS tasks")
    parser.add_argument(
        "--retrieval",
        metavar="PATH",
        type=Path,
        help="a folder with queries.jsonl, corpus.jsonl, qrels.tsv, or a file of pairs",
    )
    parser.add_argument("--pooling", metavar="NAME", help="instead of the model's own")
    parser.add_argument("--device", default="auto", metavar="auto|cpu|cuda|mps")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    given = parser.parse_args(list(arguments))
    if given.sts is None and given.retrieval is None:
        raise InputError("nothing to evaluate: give --sts DIR or --retrieval PATH")
    from isotrope.evaluation import evaluate

    result = evaluate(
        given.model,
        sts=given.sts,
        retrieval=given.retrieval,
        pooling=given.pooling,
        device=given.device,
        progress=True,
    )
    if given.json:
        print(json.dumps(result.details, ensure_ascii=False))
        return 0
    tasks = result.details.get("tasks", {})
    if tasks:
        header = [*tasks, "average"]
        values = [f"{task['spearman']:.2f}" for task in tasks.values()]
        print(table(header, [[*values, f"{result.details['average']:.2f}"]]))
    found = result.details.get("retrieval", {})
    if found:
        print(table(list(found), [[f"{value:.4f}" for value in found.values()]]))
    return 0
