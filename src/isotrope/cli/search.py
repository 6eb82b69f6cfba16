"""``isotrope search``: find the lines of a file, or pictures of a folder, nearest to a query."""

import json
import shlex
import sys
import time
from pathlib import Path

from isotrope.cli.arguments import check_readable
from isotrope.cli.command import Command, model
from isotrope.core.errors import InputError, SettingError
from isotrope.core.legible import legible, shortened
from isotrope.core.settings import setting
from isotrope.encoders.names import resolve
from isotrope.evaluation.options import Search

EPILOG = """\
examples:
  isotrope search runs/wiki sentences.txt "what you are looking for" --top 5
  isotrope search runs/wiki sentences.txt --queries questions.txt --json > found.jsonl
  isotrope search runs/photos photos/ like-this.jpg

  isotrope encode runs/wiki sentences.txt -o sentences.npy
  isotrope search runs/wiki sentences.txt "a query" --embeddings sentences.npy

If a column _id or id has an id for each text, a hit has this id instead of its line. If several
rows have the same text, the line of the first is printed; --json has those of all, as "places".

With --embeddings, a search takes seconds, even in a long file. The matrix must have a row for each
line of the file. The command encodes a few lines again. If these embeddings differ from the matrix,
the matrix is from another model, file or prompt, and the command ends with an error.
"""

_LONG = 30  # seconds after which a search prints how to store the embeddings


class SearchSettings(Search):
    """Settings of ``isotrope search``."""

    model: str = model()
    file: Path = setting(
        ..., "Text file, or folder of pictures, to search.", "FILE|FOLDER", positional=True
    )
    query: list[str] = setting(
        [], "One or more texts, or paths of pictures.", "QUERY", positional=True
    )
    queries: Path | None = setting(None, "File with a query on each line; '-' reads stdin.")
    as_json: bool = setting(
        False, "Print a JSON object for each query; texts are not shortened.", name="--json"
    )


def search(settings: SearchSettings) -> int:
    """Search, and print the score, id or line, and text of each hit."""
    check_readable(settings.file, settings.embeddings, settings.queries)
    queries = [*settings.query, *_lines(settings.queries)]
    if not queries:
        raise SettingError(
            "no query", setting="query", remedy="give words to search for, or `--queries FILE`"
        )
    resolve(settings.model)
    from isotrope.evaluation import files

    options, began = settings.model_dump(include={*Search.model_fields}), time.monotonic()
    results = files.search(settings.model, settings.file, queries, progress=True, **options)
    differ = settings.model_fields_set & {"embeddings", "pooling", "passage_prompt"}
    if time.monotonic() - began > _LONG and settings.file.is_file() and not differ:
        columns, matrix = settings.columns and ["--columns", *settings.columns], settings.file.stem
        words = ["encode", settings.model, str(settings.file), *columns, "-o", f"{matrix}.npy"]
        again = f"`isotrope {shlex.join(words)}`, then `{shlex.join(['--embeddings', words[-1]])}`"
        print(f"to search again without embedding the texts: {again}", file=sys.stderr)
    several = len(queries) > 1
    if not settings.as_json:
        print(f"cosine  {'number: picture' if settings.file.is_dir() else 'line or id: text'}")
    for query, hits in zip(queries, results, strict=True):
        if settings.as_json:
            rows = [{**hit._asdict(), "places": hit.places} for hit in hits]
            print(json.dumps({"query": query, "hits": rows}))
            continue
        if several:
            print(legible(query))
        for hit in hits:
            more = f" (and {len(hit.places) - 1:,} more)" if len(hit.places) > 1 else ""
            print(f"{'  ' * several}{hit.score:.4f}  {hit.place}{more}: {shortened(hit.text)}")
    return 0


def _lines(file: Path | None) -> list[str]:
    """Return the queries of a file, without blank lines."""
    if file is None:
        return []
    if str(file) == "-":
        try:
            texts = sys.stdin.buffer.read().decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"convert the queries to UTF-8, as with iconv: {error}") from error
    else:
        from isotrope.data.lines import lines

        texts = [text for _, text in lines(file)]
    return [text.strip() for text in texts if text.strip()]


run = Command(
    "search",
    SearchSettings,
    search,
    "Find the lines of a file, or pictures of a folder, nearest to a query.",
    EPILOG,
)
