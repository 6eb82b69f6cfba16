"""The settings of evaluation, encoding and search, for the command line and for Python."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from isotrope.core.settings import Names, Settings, Used, setting

DATA = "data to score on, in any combination"
"""Title of the settings that name data, in the help of an evaluation."""

_of_texts = Used(lambda pictures: not pictures, "the encoder takes pictures")
_for_texts = partial(setting, used=_of_texts)
_of_transfer = Used(lambda transfer: transfer, "needs `--transfer DIR`")
_of_files = Used(lambda retrieval, labels: retrieval or labels, "needs `--retrieval` or `--labels`")
OF_LABELS = ("labels", "labels_test")
"""Settings whose data may be pictures; all other data are texts."""


class Evaluation(Settings):
    """The settings of ``isotrope evaluate`` that apply to each model."""

    sts: Path | None = _for_texts(None, "Seven STS tasks, or scored pairs.", "DIR|FILE", group=DATA)
    transfer: Path | None = _for_texts(None, "The seven transfer tasks.", "DIR", group=DATA)
    retrieval: Path | None = _for_texts(None, "Queries and answers.", "DIR|FILE", group=DATA)
    columns: Names = _for_texts(
        [],
        "Columns of query and answer, by name or number; or text,label=COLUMN for labelled texts.",
        group=DATA,
        used=[_of_texts, _of_files],
        python="str | list[str] | list[int]",
    )
    corpus: Path | None = _for_texts(
        None,
        "More texts to rank: a file of texts or pairs; to a folder, add them as corpus lines.",
        group=DATA,
        used=[_of_texts, Used(lambda retrieval: retrieval, "needs `--retrieval FILE`")],
    )
    labels: Path | None = setting(None, "Labelled texts or images.", "DIR|FILE", group=DATA)
    labels_test: Path | None = setting(
        None,
        "Test part of the labelled texts or images (default: a part of --labels).",
        group=DATA,
        used=Used(lambda labels: labels, "needs the training part, `--labels`"),
    )
    knn: bool = setting(True, "Score --labels by the k nearest neighbours.", group=DATA)
    linear: bool = setting(True, "Score --labels by a linear probe.", group=DATA)
    mode: Literal["full", "prototyping"] = setting(
        "full", "Protocol of the transfer tasks.", used=_of_transfer
    )
    only: list[str] = setting(
        [],
        "Transfer tasks to score, for example `MR TREC` (default: all).",
        "TASK",
        many=True,
        name="--tasks",
        used=_of_transfer,
    )
    pooling: str | None = setting(None, "Pooling that replaces the model's own.")
    truncate_dim: int | None = _for_texts(
        None, "Score only the first N coordinates of the texts' embeddings."
    )
    device: str = setting("auto", "Device to compute on.", "auto|cpu|cuda|mps")
    batch_size: int = setting(128, "Texts or pictures in each batch.")
    results: str | None = setting("auto", "Folder of the stored scores of finished tasks.", "DIR")
    again: bool = setting(
        False,
        "Score finished tasks again.",
        used=Used(lambda results: results, "nothing is stored", note=True),
    )

    @property
    def data(self) -> dict[str, Path]:
        """The data that were given: a dict from the name of each setting to its path."""
        fields = {name: getattr(self, name) for name in Evaluation.model_fields}
        return {name: path for name, path in fields.items() if isinstance(path, Path)}


_encoded = Used(lambda corpus: corpus != "matrix", "the corpus is given as embeddings")


class _OfTexts(Settings):
    """The settings for embedding the texts of a file."""

    columns: list[str] = setting(
        [],
        "Column of the texts in a .csv, .jsonl or .parquet file.",
        used=[_of_texts, Used(lambda corpus: corpus == "file", "only a file has columns")],
    )
    pooling: str | None = _for_texts(None, "Pooling that replaces the model's own.")
    batch_size: int = setting(128, "Texts in each batch.", used=replace(_of_texts, note=True))
    device: str = setting("auto", "Device to compute on.", "auto|cpu|cuda|mps")


class Encoding(_OfTexts):
    """The settings of ``isotrope encode``."""

    normalize: bool = setting(False, "Scale every row to length 1.")
    prompt: str | None = _for_texts(
        None,
        "Prompt before every text.",
        "TEXT",
        shown="the model's own passage prompt, if it has one",
    )
    jobs: int = _for_texts(1, "Number of processes; each loads the model.", ge=1)


class Search(_OfTexts):
    """The settings of ``isotrope search``."""

    top: int = setting(10, "Number of texts or pictures to print for each query.", ge=1)
    embeddings: Path | None = setting(
        None,
        "Embeddings of FILE that `isotrope encode` wrote, so that only the query is encoded.",
        "FILE.npy",
        used=[_of_texts, _encoded],
    )
    query_prompt: str | None = _for_texts(
        None, "Prompt before every query.", "TEXT", shown="the model's own"
    )
    passage_prompt: str | None = setting(
        None,
        "Prompt before every text of FILE.",
        "TEXT",
        shown="the model's own",
        used=[_of_texts, _encoded],
    )
