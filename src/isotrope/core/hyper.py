"""Classes with which an objective declares its hyperparameters, presets and papers."""

import dataclasses
import functools
import inspect
import math
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeGuard, cast

from isotrope.core.errors import unknown


@dataclass(frozen=True)
class Hyper:
    """One hyperparameter of an objective, or of a part of an objective.

    Attributes:
        symbol: Letter of the hyperparameter in formulas, such as ``"tau"`` (docs/notation.md).
        help: Meaning of the hyperparameter, such as ``"divisor of the similarities"``.
        above: Exclusive lower bound; None if there is no such bound.
        at_least: Inclusive lower bound; None if there is no such bound.
        at_most: Inclusive upper bound; None if there is no such bound.
        constant: True if the hyperparameter cannot be learnt, because no gradient reaches it.
        choices: Allowed values of a ``Literal`` or a ``bool``; empty for numbers.
            :func:`hypers` takes the values from the type of the field.
    """

    symbol: str
    help: str
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    constant: bool = False
    choices: tuple[str | bool, ...] = ()

    @property
    def bounds(self) -> str:
        """The allowed values in words: ``"> 0"``, ``">= 0, <= 1"``, ``"cross, both"``, ..."""
        if self.choices:
            return ", ".join(c if isinstance(c, str) else str(c).lower() for c in self.choices)
        limits = ((">", self.above), (">=", self.at_least), ("<=", self.at_most))
        return ", ".join(f"{sign} {value:g}" for sign, value in limits if value is not None) or (
            "any number"
        )

    def allows(self, value: float) -> bool:
        """Return whether a number is within the bounds."""
        return not (
            not math.isfinite(value)
            or (self.above is not None and value <= self.above)
            or (self.at_least is not None and value < self.at_least)
            or (self.at_most is not None and value > self.at_most)
        )


@dataclass(frozen=True)
class Paper:
    """The source of an objective.

    Attributes:
        title: Title of the publication.
        reference: Authors and year.
        equation: Equations and tables that the code follows, e.g. ``"Li et al. 2024, eq. 1"``.
    """

    title: str
    reference: str
    equation: str


@dataclass(frozen=True)
class Preset:
    """Tuned hyperparameters from a paper, and the training settings for which they were tuned.

    Attributes:
        values: Hyperparameters by field name.
        learning_rate: Learning rate of AdamW at the start; it decays linearly.
        batch_size: Number of sentences in a batch.
        source: Paper and table that have these values.

    Example:
        >>> preset = Preset({"margin": 0.3}, learning_rate=1e-5, batch_size=128, source="table 2")
        >>> preset.values["margin"]
        0.3
    """

    values: Mapping[str, float | str]
    learning_rate: float
    batch_size: int
    source: str


# 1e-4 is far below every published temperature; below it, s / tau would overflow float32
Temperature = Annotated[float, Hyper("tau", "divisor of the similarities", at_least=1e-4)]


def hypers(cls: type) -> Mapping[str, Hyper]:
    """Return the hyperparameters of a class: a mapping from field name to :class:`Hyper`."""
    return _hypers(cls)


@functools.cache
def _hypers(cls: type) -> Mapping[str, Hyper]:
    hints = typing.get_type_hints(cls, include_extras=True)
    hypers: dict[str, Hyper] = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        for hyper in getattr(hint, "__metadata__", ()):
            if isinstance(hyper, Hyper):
                hypers[field.name] = dataclasses.replace(hyper, choices=_choices(hint.__origin__))
    return MappingProxyType(hypers)


def _choices(hint: object) -> tuple[str | bool, ...]:
    if hint is bool:
        return (False, True)
    return typing.get_args(hint) if typing.get_origin(hint) is Literal else ()


def is_number(setting: object) -> TypeGuard[float | str]:
    """Return whether a setting is a number, or the text of one."""
    try:
        float(cast("float", setting))
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def value_of(hyper: Hyper, setting: object) -> float | str:
    """Convert ``setting`` (a number, or the text of a flag) to the type of the hyperparameter."""
    if hyper.choices:
        for choice in hyper.choices:
            if str(setting).lower() == str(choice).lower():
                return choice
        raise ValueError(f"one of {hyper.bounds}; found {setting!r}")
    if isinstance(setting, bool) or not is_number(setting):
        raise ValueError(f"a number; found {setting!r}")
    return float(setting)


def check(instance: object, *, constant: bool = False) -> None:
    """Raise an error unless the hyperparameters of ``instance`` are within their bounds.

    With ``constant``, a tensor that requires a gradient is an error too.
    """
    for name, hyper in hypers(type(instance)).items():
        value, whose = getattr(instance, name), f"{name} of {type(instance).__name__}"
        if (constant or hyper.constant) and getattr(value, "requires_grad", False):
            raise ValueError(
                f"use a number, or a tensor without requires_grad, for {whose}: it cannot be "
                "learnt, because no gradient reaches it"
            )
        if hyper.choices:
            if not any(value == choice for choice in hyper.choices):
                bounds = f"one of {hyper.bounds}"
                raise ValueError(f"{whose} ({hyper.help}) must be {bounds}; found {value}")
        elif not hyper.allows(number := _number(value, whose)):
            raise ValueError(f"{whose} ({hyper.help}) must be {hyper.bounds}; found {number:g}")


def _number(value: object, whose: str) -> float:
    """Convert a number, or a tensor without dimensions, to a float; refuse anything else."""
    plain = value.detach() if hasattr(value, "detach") else value
    if shape := tuple(getattr(plain, "shape", ())):
        raise ValueError(
            f"{whose} must be a number, or a tensor without dimensions; found shape {shape}"
        )
    if isinstance(plain, (str, bool)) or not is_number(plain):
        raise ValueError(f"{whose} must be a number; found {value!r}")
    return float(plain)


def take_preset(cls: type, presets: Mapping[str, Preset]) -> None:
    """Let the constructor of ``cls`` take ``preset="NAME"``, whose values replace the defaults."""
    plain = vars(cls)["__init__"]

    @functools.wraps(plain)
    def init(self: object, *positional: Any, preset: str | None = None, **values: Any) -> None:
        if positional:
            names = ", ".join(field.name for field in dataclasses.fields(cls)) or "none"
            raise TypeError(
                f"pass the hyperparameters of {cls.__name__} by name ({names}); found "
                f"{positional[0]!r} without a name"
            )
        if preset is not None and preset not in presets:
            raise ValueError(unknown(f"{cls.__name__} has no preset", preset, presets))
        tuned = {} if preset is None else presets[preset].values
        plain(self, **{**tuned, **values})

    signature = inspect.signature(plain)
    extra = inspect.Parameter("preset", inspect.Parameter.KEYWORD_ONLY, default=None)
    parameters = [*signature.parameters.values(), extra]
    vars(init)["__signature__"] = signature.replace(parameters=parameters)
    type.__setattr__(cls, "__init__", init)


def bibtex(paper: Paper) -> str:
    """Return BibTeX for a paper: one entry for each title; other references become a note.

    >>> print(bibtex(Paper("A Loss", "Doe et al., 2020; for sentences: Roe, 2021", "eq. 1")))
    @misc{doe2020,
        title={A Loss},
        author={Doe and others},
        year={2020},
        note={for sentences: Roe, 2021}
    }
    """
    titles, references = paper.title.split("; "), paper.reference.split("; ")
    note = "; ".join(references[len(titles) :])
    entries = list[str]()
    for title, reference in zip(titles, references, strict=False):
        entries.append(_bibtex_entry(title, reference, note if not entries else ""))
    return "\n\n".join(entries)


def _bibtex_entry(title: str, reference: str, note: str) -> str:
    """Split ``Wang and Isola, 2020`` into author and year; keep any other reference as author."""
    match = re.fullmatch(r"(.+), (\d{4})(?: \(.+\))?", reference)
    authors, year = (match[1], match[2]) if match else (reference, "")
    first = re.split(r" et al\.| and ", authors)[0]
    key = re.sub(r"[^a-z]", "", first.lower()) + year
    author = authors.replace("et al.", "and others")
    fields = {"title": title, "author": author, "year": year, "note": note}
    lines = ",\n".join(f"    {name}={{{text}}}" for name, text in fields.items() if text)
    return f"@misc{{{key or 'unknown'},\n{lines}\n}}"
