"""``isotrope push``: upload the model of a run to the Hugging Face hub."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isotrope.cli.arguments import Parser
from isotrope.cli.table import table

if TYPE_CHECKING:
    from isotrope.adapters.hub import Upload

EPILOG = """\
examples:
  isotrope push runs/first user/name --dry-run
  isotrope push runs/first user/name --private

What goes up is RUN/model: weights, tokenizer, and a card with the objective and its settings, the
fingerprint of the training data, the scores that `isotrope evaluate` has kept of exactly these
weights, and what to cite. Texts, checkpoints and logs stay here. Log in with `hf auth login`, or
set HF_TOKEN. Only this verb writes to the network.

exit codes: 0 done, 2 bad input, no network, or the hub refused.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, look at the folder, upload it, print where it is."""
    parser = Parser(
        prog="isotrope push",
        description="Upload the model of a run, with its card, to the Hugging Face hub.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", help="finished run folder, or a model folder")
    parser.add_argument("repo", metavar="USER/NAME", help="of the repository; made if need be")
    parser.add_argument(
        "--private", action="store_true", help="a new repository is seen by nobody else"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list the files and print the card; no network"
    )
    options = parser.parse_args(list(arguments))
    from isotrope.adapters import hub

    hub.check(options.run, options.repo)
    # first of all: to complete the card, a model may have to be loaded
    api = None if options.dry_run else hub.reachable(options.repo)
    upload = hub.prepare(options.run, options.repo)
    if api is None:
        _show(upload)
    else:
        print(hub.push(upload, api, private=options.private))
    return 0


def _show(upload: "Upload") -> None:
    """Print what would be uploaded."""
    sizes = {file.relative_to(upload.folder): file.stat().st_size for file in upload.files}
    sizes |= {Path("README.md"): len(upload.card.encode("utf-8"))}
    rows = [(place.as_posix(), f"{size:,}") for place, size in sorted(sizes.items())]
    print(f"{upload.folder} -> {upload.repo}\n\n{table(['file', 'bytes'], rows)}\n\n{upload.card}")
