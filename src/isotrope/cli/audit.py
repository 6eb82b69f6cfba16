"""``isotrope audit``: say before a training what an objective will do to the data."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrope.cli.arguments import Parser, add_fields, check_readable, dotted
from isotrope.core.errors import InputError
from isotrope.data.sources import by_dataset
from isotrope.training.images.settings import ImageSettings
from isotrope.training.settings import flag

if TYPE_CHECKING:
    from isotrope.diagnostics.audit.result import Audit

EPILOG = """\
examples:
  isotrope audit pairs.tsv --encoder all-MiniLM-L6-v2
  isotrope audit pairs.tsv --encoder all-MiniLM-L6-v2 --batch-size 128 --output audits/pairs
  isotrope audit sentences.txt --encoder path/to/model --objective mpt --objective.margin 0.3
  isotrope audit pairs.tsv --encoder all-MiniLM-L6-v2 --mine 2 --output audits/pairs
  isotrope train audits/pairs/cleaned.jsonl --groups label --output runs/cleaned
  isotrope train audits/pairs/grouped.jsonl --groups label --output runs/grouped
  isotrope train audits/pairs/mined.jsonl --groups label --output runs/mined
  isotrope audit photos/ --encoder runs/photos --output audits/photos
  isotrope audit digits --encoder resnet9 --method mocov3 --objective.temperature 0.1

Nothing is trained: the encoder embeds every text once, cut as training cuts it, or two crops of
every picture, as training makes them. The output says how the objective behaves at the first step
with each setting, and which values to begin with; which pairs of rows push each other as rows that
belong together do (likely false negatives); which rows have a positive that is far away or a text
that is cut, or occur twice; and whether whitening helps.

Rows are named by their lines in the file, counted from 1. With --output a folder gets the page
audit.html, audit.json, cleaned.jsonl, grouped.jsonl and, with --mine, mined.jsonl. The rows of the
last three have a column label, equal for rows of one group, of --groups or likely: for
`train --groups label`, and for ObjectiveLoss with groups=True in the trainer of
sentence-transformers.

Pictures are named by their paths in the folder, or by their numbers in the set, counted from 0. Of
them nothing is recommended. With --output a folder gets audit.html and audit.json.
"""

_TEXTS = {
    *("columns", "groups", "views", "max_length", "query_prompt", "passage_prompt"),
    *("dev", "mine", "hardness"),
}
_PICTURES = (
    *("method", "width", "stem", "image_size", "augment", "pixels", "classes", "limit"),
    "holdout",
)


def run(arguments: Sequence[str]) -> int:
    """Parse, check what can be checked at once, audit, print."""
    flags, others = dotted(arguments, "objective")
    of_method, others = dotted(others, "method")
    options = vars(_parsed(others))
    data, output, as_json = (options.pop(name) for name in ("data", "output", "json"))
    if len(data) > 1:
        raise InputError(
            f"audit takes one file; found {len(data)}: a batch of a training is of one "
            "data set, so audit each by itself"
        )
    pictures = _is_pictures(data[0])
    _refuse_others({**options, **of_method}, data[0], pictures=pictures)
    check_readable(*options["plugin"])
    if output is not None and output.is_file():
        raise InputError(f"--output {output} is a file; give a folder")
    audited = (
        _pictures(data[0], {**options, **flags, **of_method}, output)
        if pictures
        else _texts(data[0], options, flags, output)
    )
    print(audited.to_json().rstrip() if as_json else audited)
    if output is not None:
        groups = options.get("groups")
        column = f"; train on its files with --groups label, which includes {groups}"
        print(f"written to {output}{column if groups else ''}", file=sys.stderr)
    return 0


def _is_pictures(data: str) -> bool:
    """Whether ``train-images`` takes it: texts are audited by the line, in one file."""
    path = Path(data)
    return path.is_dir() or path.suffix == ".npz" or (data == "digits" and not path.is_file())


def _refuse_others(given: dict[str, Any], data: str, *, pictures: bool) -> None:
    """Refuse flags that are for data of the other kind."""
    others = _TEXTS if pictures else {name for name in given if name.startswith("method.")}
    others |= set() if pictures else set(_PICTURES)
    for name in given:
        if name in others:
            kinds = ("texts", "pictures") if pictures else ("pictures", "texts")
            raise InputError(
                f"--{flag(name)} is for {kinds[0]}, and {data} holds {kinds[1]}: leave it out"
            )


def _texts(
    data: str, options: dict[str, Any], flags: dict[str, str], output: Path | None
) -> "Audit":
    ((file,),) = by_dataset([data]).values()  # of NAME=FILE, as train takes it
    check_readable(Path(file))
    if "encoder" not in options:
        raise InputError("--encoder is missing: what training will begin with")
    dev, plugins = options.get("dev"), options.pop("plugin")
    if dev not in (None, "auto", "none"):
        check_readable(Path(dev))
    settings = {name.removeprefix("objective."): value for name, value in flags.items()}
    if not plugins:
        from isotrope.paradigm.declared import check_declared

        check_declared(options.get("objective", "infonce"), settings)
    if "columns" in options:
        split = (name.strip() for column in options["columns"] for name in column.split(","))
        options["columns"] = [name for name in split if name]
    if dev == "none":
        options["dev"] = None
    from isotrope.verbs import audit

    return audit(
        file, **options, objective_settings=settings, plugins=plugins, output=output, progress=True
    )


def _pictures(data: str, options: dict[str, Any], output: Path | None) -> "Audit":
    suspect = options.pop("suspect", 0.1)
    settings = ImageSettings.read({"data": data, "output": "none", **options})
    check_readable(*map(Path, settings.inputs))
    from isotrope.verbs import audit_pictures

    return audit_pictures(settings, suspect=suspect, output=output, progress=True)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what is given; of the rest ``isotrope.audit`` and ``ImageSettings`` have defaults."""
    parser = Parser(
        prog="isotrope audit",
        description="Check data and settings with the encoder, before training.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.dotted = ImageSettings.dotted_names
    add = parser.add_argument
    add(
        "data",
        metavar="DATA",
        nargs="+",
        help="one file of texts or pairs, as for `train`; or a folder of pictures, .npz or digits, "
        "as for `train-images`",
    )
    add("--encoder", metavar="NAME", help="what training will begin with [of pictures resnet18]")
    add(
        "--objective",
        metavar="NAME",
        help="objective to analyse; settings as --objective.SETTING VALUE [infonce; of pictures "
        "the method's own]",
    )
    add(
        "--batch-size",
        type=int,
        metavar="N",
        help="rows a step in training [64; of pictures 128]",
    )
    add(
        "--suspect",
        type=float,
        metavar="X",
        help="reciprocal push from which two rows are likely false negatives [0.1]",
    )
    add(
        "--seed",
        type=int,
        metavar="N",
        help="of batches, dropout and crops [0; of pictures 42, as in training]",
    )
    add("--device", metavar="auto|cpu|cuda|mps", help="where to embed [auto]")
    add(
        "--plugin",
        metavar="FILE",
        action="append",
        default=[],
        type=Path,
        help="with objectives",
    )
    add(
        "--output",
        metavar="DIR",
        type=Path,
        default=None,
        help="write the page, and of texts the files for a training",
    )
    add("--json", action="store_true", default=False, help="print JSON and nothing else")
    add = parser.add_argument_group("for texts only").add_argument
    add("--columns", metavar="NAME", action="append", help="of tables, as in training")
    add("--groups", metavar="NAME", help="column of groups of rows that belong together")
    add(
        "--views",
        choices=("auto", "dropout", "adjacent", "pairs"),
        help="how a positive is made, as in training [auto]",
    )
    add("--max-length", type=int, metavar="N", help="tokens a text is cut to [32]")
    add("--query-prompt", metavar="TEXT", help="put before every anchor")
    add("--passage-prompt", metavar="TEXT", help="put before every positive and hard negative")
    add(
        "--dev",
        metavar="auto|none|PATH",
        help="what whitening is scored on: a part of DATA, an STS file, a retrieval set [auto]",
    )
    add("--mine", type=int, metavar="N", help="hard negatives for each anchor [0]")
    add(
        "--hardness",
        type=float,
        metavar="X",
        help="the largest share of the push on an anchor that one of them may have [0.3]",
    )
    fields = {name: ImageSettings.model_fields[name] for name in _PICTURES}
    add_fields(parser, fields, skip=set(), title="for pictures only, as in training")
    return parser.parse_args(list(arguments))
