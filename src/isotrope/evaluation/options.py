"""The settings of evaluation, encoding and search, for flags and for keywords of Python."""

from pathlib import Path
from typing import Literal

from pydantic import field_validator

from isotrope.core.settings import Settings, setting

DATA = "data to score on, in any combination"
"""Title in the help of the data of an evaluation."""

OF_LABELS = ("labels", "labels_test")
"""Data of an evaluation that may be pictures; all others are texts."""


class Evaluation(Settings):
    """The settings of an evaluation of one model."""

    sts: Path | None = setting(None, "The seven STS tasks, or a file.", "DIR|FILE", group=DATA)
    transfer: Path | None = setting(None, "The seven transfer tasks.", "DIR", group=DATA)
    retrieval: Path | None = setting(None, "Retrieval set.", "DIR|FILE", group=DATA)
    labels: Path | None = setting(None, "Labelled texts or images.", "DIR|FILE", group=DATA)
    labels_test: Path | None = setting(None, "Test part of the labelled texts.", group=DATA)
    knn: bool = setting(True, "The k nearest neighbours on --labels.", group=DATA)
    linear: bool = setting(True, "A linear probe on --labels.", group=DATA)
    corpus: Path | None = setting(None, "Texts for alignment, uniformity and more.", group=DATA)
    mode: Literal["full", "prototyping"] = setting("full", "Protocol of the transfer tasks.")
    only: list[str] = setting(
        [],
        "The transfer tasks to score, instead of all: MR TREC ...",
        "TASK",
        many=True,
        name="--tasks",
    )
    pooling: str | None = setting(None, "Pooling to use instead of the model's own.")
    truncate_dim: int | None = setting(None, "Number of first coordinates to score (text).")
    device: str = setting("auto", "Device to compute on.", "auto|cpu|cuda|mps")
    batch_size: int = setting(128, "Texts or pictures in each batch.")
    results: str | None = setting("auto", "Folder where finished tasks are kept.", "DIR")
    again: bool = setting(False, "Score finished tasks again.")

    @property
    def data(self) -> dict[str, Path]:
        """The data to score on, by setting."""
        fields = {name: getattr(self, name) for name in Evaluation.model_fields}
        return {name: path for name, path in fields.items() if isinstance(path, Path)}

    @field_validator("only", mode="before")
    @classmethod
    def _all(cls, value: object) -> object:
        return [] if value is None else value

    @field_validator("results", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return str(value) if isinstance(value, Path) else value


class _OfTexts(Settings):
    """The settings by which the texts of a file are embedded."""

    columns: list[str] = setting([], "Column of a .csv, .jsonl or .parquet file.")
    pooling: str | None = setting(None, "Pooling to use instead of the model's own.")
    batch_size: int = setting(128, "Texts encoded at a time.")
    device: str = setting("auto", "Device to compute on.", "auto|cpu|cuda|mps")

    @field_validator("columns", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value or []


class Encoding(_OfTexts):
    """The settings of an encoding of a file."""

    normalize: bool = setting(False, "Scale every row to length 1.")
    prompt: str | None = setting(
        None,
        "Prompt before every text.",
        "TEXT",
        shown="the model's own passage prompt, if it has one",
    )
    jobs: int = setting(1, "Processes that encode texts, each with a copy of the model.", ge=1)


class Search(_OfTexts):
    """The settings of a search."""

    top: int = setting(10, "Hits for each query.", ge=1)
    embeddings: Path | None = setting(
        None,
        "Embeddings of FILE, as `isotrope encode` wrote them. Only the query is encoded then.",
        "FILE.npy",
    )
    query_prompt: str | None = setting(
        None, "Prompt before every query.", "TEXT", shown="the model's own"
    )
    passage_prompt: str | None = setting(
        None, "Prompt before every text of FILE.", "TEXT", shown="the model's own"
    )
