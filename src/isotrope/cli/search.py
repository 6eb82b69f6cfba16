"""``isotrope search``: find the lines of a file, or the pictures of a folder, nearest a query."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from isotrope.cli.arguments import Parser, check_readable
from isotrope.core.legible import legible
from isotrope.encoders.names import resolve

EPILOG = """\
examples:
  isotrope search runs/wiki sentences.txt "what you are looking for" --top 5
  isotrope search runs/wiki sentences.txt --queries questions.txt --json > found.jsonl
  isotrope search runs/photos photos/ like-this.jpg

  isotrope encode runs/wiki sentences.txt -o sentences.npy
  isotrope search runs/wiki sentences.txt "a query" --embeddings sentences.npy

With --embeddings a search takes seconds, however long the file is: the matrix has a row for each of
its lines. A few lines are encoded again and compared with their rows, so that a matrix of another
model, file or prompt is refused.
"""


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the flags, with the lines of ``--queries`` among the queries."""
    parser = Parser(
        prog="isotrope search",
        description="Find the lines of a file, or pictures of a folder, nearest to a query.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="model folder, run folder, hub id, or the installed all-MiniLM-L6-v2",
    )
    parser.add_argument(
        "file", metavar="FILE|FOLDER", type=Path, help="where to look: text, or pictures"
    )
    parser.add_argument(
        "query", metavar="QUERY", nargs="*", help="a text, or the path of a picture; or several"
    )
    parser.add_argument(
        "--queries", metavar="FILE", type=Path, help="a file with one query a line ('-': stdin)"
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="how many [10]")
    parser.add_argument(
        "--embeddings",
        metavar="FILE.npy",
        type=Path,
        help="of FILE, as `isotrope encode` wrote them: nothing but the query is encoded then",
    )
    parser.add_argument(
        "--query-prompt", metavar="TEXT", help="put before every query [the model's own]"
    )
    parser.add_argument(
        "--passage-prompt", metavar="TEXT", help="put before every text of FILE [the model's own]"
    )
    parser.add_argument("--columns", metavar="NAME", help="of .csv, .jsonl, .parquet")
    parser.add_argument(
        "--pooling", metavar="NAME", help="pooling to use instead of the model's own"
    )
    parser.add_argument("--batch-size", type=int, default=128, metavar="N", help="texts [128]")
    parser.add_argument(
        "--device", default="auto", metavar="auto|cpu|cuda|mps", help="where to encode [auto]"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object a query and nothing else"
    )
    options = parser.parse_args(list(arguments))
    if options.top < 1:
        parser.error(f"--top must be 1 or more; found {options.top}")
    check_readable(options.file, options.embeddings, options.queries)
    options.query += _lines(options.queries)
    if not options.query:
        parser.error("no query: give some words to search for, or --queries FILE")
    return options


def run(arguments: Sequence[str]) -> int:
    """Parse, search, print score and text."""
    options = _parsed(arguments)
    resolve(options.model)
    from isotrope.evaluation.files import search

    results = search(
        options.model,
        options.file,
        options.query,
        top=options.top,
        columns=[options.columns] if options.columns else None,
        embeddings=options.embeddings,
        query_prompt=options.query_prompt,
        passage_prompt=options.passage_prompt,
        pooling=options.pooling,
        device=options.device,
        batch_size=options.batch_size,
        progress=True,
    )
    several = len(options.query) > 1
    for query, hits in zip(options.query, results, strict=True):
        if options.json:
            print(json.dumps({"query": query, "hits": [hit._asdict() for hit in hits]}))
            continue
        if several:
            print(legible(query))
        for score, line, text in hits:
            print(f"{'  ' * several}{score:.4f}  {line}: {legible(text)}")
    return 0


def _lines(file: Path | None) -> list[str]:
    """Return the queries of a file, blank lines left out."""
    if file is None:
        return []
    from isotrope.data.lines import lines

    texts = sys.stdin if str(file) == "-" else (text for _, text in lines(file))
    return [text.strip() for text in texts if text.strip()]
