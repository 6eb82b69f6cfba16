"""``isotrope encode``: write the embeddings of a file's lines, or of a folder's pictures."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from isotrope.cli.arguments import Parser, check_readable
from isotrope.encoders.names import resolve

EPILOG = """\
examples:
  isotrope encode runs/wiki/model sentences.txt -o embeddings.npy
  python -c "import numpy; print(numpy.load('embeddings.npy').shape)"

  isotrope encode runs/photos photos/ -o photos.npy

Row i of the matrix (float32) is line i of the file, blank lines left out. An encoder of images
takes a folder: the path of row i is line i of the file that is written beside it (photos.txt).
Pictures that cannot be read are left out and counted.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, encode, print the path and the shape."""
    parser = Parser(
        prog="isotrope encode",
        description="Encode every text of a file, or picture of a folder, into a row of a matrix.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="model folder, run folder, hub id, or the installed all-MiniLM-L6-v2",
    )
    parser.add_argument(
        "file", metavar="FILE|FOLDER", type=Path, help="text, or a folder of pictures"
    )
    parser.add_argument(
        "-o", "--output", metavar="OUT.npy", required=True, type=Path, help="the matrix"
    )
    parser.add_argument("--columns", metavar="NAME", help="of .csv, .jsonl, .parquet")
    parser.add_argument(
        "--pooling", metavar="NAME", help="pooling to use instead of the model's own"
    )
    parser.add_argument("--normalize", action="store_true", help="rows of length 1")
    parser.add_argument(
        "--prompt",
        metavar="TEXT",
        help="put before every text [the model's own for passages, if it was saved with one]",
    )
    parser.add_argument(
        "--batch-size", type=int, default=128, metavar="N", help="texts encoded at a time [128]"
    )
    parser.add_argument(
        "--device", default="auto", metavar="auto|cpu|cuda|mps", help="where to encode [auto]"
    )
    options = parser.parse_args(list(arguments))
    if options.output.suffix != ".npy":
        parser.error(f"output {options.output} must end in .npy")
    check_readable(options.file)
    resolve(options.model)
    from isotrope.evaluation.files import encode_file

    n, d = encode_file(
        options.model,
        options.file,
        options.output,
        columns=[options.columns] if options.columns else None,
        pooling=options.pooling,
        normalize=options.normalize,
        prompt=options.prompt,
        batch_size=options.batch_size,
        device=options.device,
        progress=True,
    )
    print(f"{n:,} x {d} float32 -> {options.output}", file=sys.stderr)
    return 0
