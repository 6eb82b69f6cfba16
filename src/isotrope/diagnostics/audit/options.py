"""The settings of an audit, for flags and for keywords of Python."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import field_validator

from isotrope.core.settings import Settings, setting
from isotrope.paradigm.declared import objective_settings

OF_TEXTS = "for texts only"
"""Title in the help of the settings that do not apply to pictures."""


class AuditSettings(Settings):
    """The settings of an audit of texts; some apply to pictures as well."""

    dotted: ClassVar[tuple[str, ...]] = ("objective",)

    encoder: str | None = setting(
        None, "Model to start training from.", shown="for pictures resnet18"
    )
    objective: str = setting(
        "infonce",
        "Objective to analyse. Its settings are --objective.SETTING VALUE.",
        "NAME",
        shown="infonce; for pictures the method's own",
    )
    objective_settings: dict[str, float | str] = setting({}, "Settings of the objective.")
    batch_size: int = setting(64, "Rows a step.", shown="64; for pictures 128", ge=2)
    suspect: float = setting(
        0.1, "Reciprocal push above which two rows are likely false negatives.", gt=0
    )
    seed: int = setting(
        0,
        "Seed of batches, dropout and crops.",
        shown="0; for pictures 42, as in training",
        ge=0,
        lt=2**32,
    )
    device: str = setting("auto", "Device to compute on.", "auto|cpu|cuda|mps")
    plugin: list[Path] = setting(
        [], "Python file with an objective of your own; may be repeated.", "FILE"
    )
    columns: list[str] = setting([], "Columns of a table, as in training.", group=OF_TEXTS)
    groups: str | None = setting(
        None, "Column of groups of rows that belong together.", group=OF_TEXTS
    )
    views: Literal["auto", "dropout", "adjacent", "pairs"] = setting(
        "auto", "Where the positive comes from, as in training.", group=OF_TEXTS
    )
    max_length: int = setting(32, "Tokens kept of each text.", group=OF_TEXTS)
    query_prompt: str = setting("", "Prompt before every anchor.", "TEXT", group=OF_TEXTS)
    passage_prompt: str = setting(
        "", "Prompt before every positive and hard negative.", "TEXT", group=OF_TEXTS
    )
    dev: str = setting(
        "auto",
        "Data to score whitening on: a part of DATA, an STS file, or a retrieval set.",
        "auto|none|PATH",
        group=OF_TEXTS,
    )
    mine: int = setting(
        0, "Hard negatives to mine for each anchor, at most 100.", ge=0, le=100, group=OF_TEXTS
    )
    hardness: float = setting(
        0.3,
        "Largest share of the push on an anchor that one hard negative may have.",
        gt=0,
        le=1,
        group=OF_TEXTS,
    )

    @field_validator("columns", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """``anchor,positive`` means two names."""
        if not isinstance(value, (str, list, tuple)):
            return value or []
        listed = [value] if isinstance(value, str) else value
        return [part.strip() for name in listed for part in str(name).split(",") if part.strip()]

    @field_validator("dev", mode="before")
    @classmethod
    def _place(cls, value: object) -> object:
        return "none" if value is None else str(value) if isinstance(value, Path) else value

    @classmethod
    def dotted_names(cls) -> list[str]:
        """Return the settings of all objectives."""
        return objective_settings()
