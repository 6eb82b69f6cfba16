"""The settings of an audit: flags of the command and keywords of the Python function."""

from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import field_validator

from isotrope.core.settings import Names, Settings, Used, setting
from isotrope.paradigm.declared import objective_settings

OF_TEXTS = "for texts only"
"""Heading, in the help, of the settings that do not apply to pictures."""
of_texts = Used(lambda pictures: not pictures, "these are pictures")
for_texts = partial(setting, group=OF_TEXTS, used=of_texts)


class AuditSettings(Settings):
    """The settings of an audit. Settings in the group ``OF_TEXTS`` do not apply to pictures."""

    dotted: ClassVar[tuple[str, ...]] = ("objective",)

    encoder: str | None = setting(
        None,
        "Encoder from which the training would start.",
        shown="all-MiniLM-L6-v2; for pictures resnet18",
    )
    objective: str = setting(
        "infonce",
        "Objective to analyse. Set its parameters by --objective.SETTING VALUE.",
        "NAME",
        shown="infonce; for pictures the method's own",
    )
    objective_settings: dict[str, float | str] = setting({}, "Settings of the objective.")
    batch_size: int = setting(64, "Rows in a batch.", shown="64; for pictures 128", ge=2)
    suspect: float = setting(
        0.6,
        "Evidence from which on two rows are listed as likely false negatives: a difference of "
        "cosines, which is 0 if two rows are as near to each other as to their other nearest rows.",
        gt=0,
    )
    seed: int = setting(
        0,
        "Seed of the batches, dropout and crops.",
        shown="0; for pictures 42, as in `isotrope train-images`",
        ge=0,
        lt=2**32,
    )
    device: str = setting("auto", "Device to compute on.", "auto|cpu|cuda|mps")
    plugin: list[Path] = setting(
        [], "Python file that defines an objective of yours; may be repeated.", "FILE"
    )
    columns: Names = for_texts([], "Names or numbers of the columns to read, as for `train`.")
    groups: str | None = for_texts(None, "Column of groups; rows of a group are not pushed apart.")
    views: Literal["auto", "dropout", "adjacent", "pairs"] = for_texts(
        "auto", "Source of the positives, as with `isotrope train --views`."
    )
    max_length: int | None = for_texts(
        None,
        "Cut texts to this number of tokens.",
        shown="the encoder's limit; for single texts at most 128",
    )
    query_prompt: str = for_texts("", "Prompt before every anchor.", "TEXT")
    passage_prompt: str = for_texts("", "Prompt before every positive and hard negative.", "TEXT")
    dev: str = for_texts(
        "auto",
        "Data on which whitened embeddings are scored: an STS file, a retrieval set, or auto "
        "(a part of DATA).",
        "auto|none|PATH",
    )
    mine: int = setting(
        0,
        "Hard negatives to mine for each anchor, at most 100.",
        ge=0,
        le=100,
        group=OF_TEXTS,
        used=[of_texts, Used(lambda single: not single, "single texts have no hard negatives")],
    )
    hardness: float = setting(
        0.3,
        "Do not mine rows that cause more than this share of the push on the anchor.",
        gt=0,
        le=1,
        group=OF_TEXTS,
        used=[of_texts, Used(lambda mine: mine, "needs `--mine N`")],
    )

    @field_validator("dev", mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        return "none" if value is None else value

    @classmethod
    def dotted_names(cls) -> list[str]:
        """Return the names of the settings of all objectives."""
        return objective_settings()
