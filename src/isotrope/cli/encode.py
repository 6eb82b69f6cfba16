"""``isotrope encode``: write the embeddings of the texts in a file or the pictures in a folder."""

import sys
from pathlib import Path

from isotrope.cli.arguments import check_readable
from isotrope.cli.command import Command, model
from isotrope.core.errors import SettingError
from isotrope.core.settings import setting
from isotrope.encoders.names import resolve
from isotrope.evaluation.options import Encoding

EPILOG = """\
examples:
  isotrope encode runs/wiki/model sentences.txt -o embeddings.npy
  python -c "import numpy; print(numpy.load('embeddings.npy').shape)"

  isotrope encode runs/photos photos/ -o photos.npy

Row i of the matrix (float32) is the embedding of text i of the file. Blank lines are skipped. In a
table, rows with an empty cell are skipped. A second file, embeddings.rows.csv beside
embeddings.npy, therefore lists for each text its row in the table (1 is the first after the
header), its line, and its id if a column _id or id has one. For an image encoder, give a folder.
The second file, photos.txt beside photos.npy, then lists the path of each picture. Unreadable
pictures are skipped. A message says how many were skipped. If the encoding of texts is interrupted,
repeat the command to continue. With --jobs N, N processes share the cores or GPUs, and each process
loads the model.
"""


class EncodeSettings(Encoding):
    """Settings of ``isotrope encode``."""

    model: str = model()
    file: Path = setting(..., "Text file, or folder of pictures.", "FILE|FOLDER", positional=True)
    output: Path = setting(..., "The matrix to write.", "OUT.npy", short="-o")


def encode(settings: EncodeSettings) -> int:
    """Encode, and print the shape and path of the matrix."""
    if settings.output.suffix != ".npy":
        raise SettingError("must end in .npy", setting="output", value=str(settings.output))
    check_readable(settings.file)
    resolve(settings.model)  # refuses an unknown model before the import below, which is slow
    from isotrope.evaluation.files import encode_file

    options = settings.model_dump(include={*Encoding.model_fields})
    n, d = encode_file(settings.model, settings.file, settings.output, progress=True, **options)
    print(f"{n:,} x {d} float32 -> {settings.output}", file=sys.stderr)
    return 0


run = Command(
    "encode",
    EncodeSettings,
    encode,
    "Write the embeddings of all texts of a file, or all pictures of a folder, to a matrix.",
    EPILOG,
)
