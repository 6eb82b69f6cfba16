"""The base class of settings: each field is a flag, a YAML key and a Python argument."""

import inspect
import sys
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast

import pydantic
from pydantic.fields import FieldInfo

from isotrope.core.errors import NotUsed, SettingError
from isotrope.core.files import from_home
from isotrope.core.spelling import as_key, intended_name, named, spell

_PROPERTIES = ("positional", "many", "short", "name", "shown", "group", "python", "used")

T = TypeVar("T")
BY_RECIPE = "by recipe"
Auto = Annotated[T, BY_RECIPE]  # the type of a setting that --recipe auto chooses if left out


@dataclass(frozen=True)
class Used:
    """A condition under which a setting has an effect.

    Attributes:
        when: Function that returns True if the setting has an effect. Its parameters are named
            like other settings, or like the ``facts`` of :meth:`Settings.check_used`.
        otherwise: Reason in the message about an unused setting: a template for ``str.format``.
        note: True if the result is the same without the setting: an unused setting is then
            reported, but is no error. If False, an unused setting is an error.
    """

    when: Callable[..., object]
    otherwise: str
    note: bool = False


@dataclass(frozen=True)
class _Unused:
    """A given setting without effect in a run, and why; ``is_note``: it is no error."""

    name: str
    value: object
    why: str
    is_note: bool


@dataclass(frozen=True)
class ByRecipe:
    """The default, in a signature, of a setting that ``recipe="auto"`` chooses for the data."""

    papers: object

    def __repr__(self) -> str:
        return f"<recipe; papers: {self.papers!r}>"


def setting(default: object, description: str, metavar: str = "", **more: Any) -> Any:  # noqa: ANN401
    """Return one field of a class of settings, with what the command line needs.

    Args:
        default: Default value; ``...`` for a setting that is required.
        description: Help text: what the setting is, and the conditions under which it is used.
        metavar: Placeholder of the value in the help; by default derived from the type.
        more: ``positional``: the value has no flag. ``many``: one flag takes several words.
            ``short``: a short flag. ``name``: the flag, if it differs from the field. ``shown``:
            how the help shows a computed default. ``group``: title of a group in the help.
            ``python``: type in Python, if Python accepts more types than a file. ``used``:
            conditions (:class:`Used`). ``ge``, ``gt``, ``le``, ``lt``: bounds, as in
            ``pydantic.Field``.
    """
    known = {name: more.pop(name) for name in _PROPERTIES if name in more}
    if metavar:
        known["metavar"] = metavar
    if isinstance(known.get("used"), Used):
        known["used"] = [known["used"]]
    return pydantic.Field(default, description=description, json_schema_extra=known, **more)


def _print(line: str) -> None:
    print(line, file=sys.stderr)


class Settings(pydantic.BaseModel):
    """Base class of the settings of a command.

    Attributes:
        dotted: Fields whose values have settings themselves. For example, ``objective.x``, a
            setting of the objective, is stored in the field ``objective_settings``.
        from_file: Whether settings may come from a file. If so, every switch has a ``--no-`` flag.
        places: Fields with the path of a file or folder as text.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    dotted: ClassVar[tuple[str, ...]] = ()
    from_file: ClassVar[bool] = False
    places: ClassVar[tuple[str, ...]] = ()

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _no_switch(cls, value: object, info: pydantic.ValidationInfo) -> object:
        """Reject booleans for numbers (a bool is an int); put a single value into a list."""
        field = cls.model_fields[str(info.field_name)]
        kind = typing.get_origin(field.annotation) or field.annotation
        if isinstance(value, bool) and kind not in (bool, dict):  # a dict may hold switches
            raise ValueError("give a number or a text, not true or false")
        if kind is list:
            value = [value] if isinstance(value, (str, Path)) else value
            value = [] if value is None and not cls.from_file else value
        if isinstance(value, (list, tuple)):
            return [cls._plain(one, info) for one in value]
        return cls._plain(value, info)

    @classmethod
    def _plain(cls, value: object, info: pydantic.ValidationInfo) -> object:
        """Convert a path to text for a field of texts; expand ``~`` in a field of paths."""
        paths = "Path" in str(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, Path) and not paths:
            value = str(value)
        # a shell leaves --output=~/x as it is
        home = isinstance(value, str) and (paths or info.field_name in cls.places)
        return from_home(str(value)) if home else value

    @pydantic.field_validator("*", mode="after")
    @classmethod
    def _written(cls, value: object, info: pydantic.ValidationInfo) -> object:
        """Check texts, because they are written to files or used as paths."""
        place = info.field_name in cls.places
        for text in value if isinstance(value, list) else [value]:
            if not (cls.from_file and isinstance(text, str)):
                continue
            if "\0" in text or text.encode("utf-8", "ignore").decode("utf-8") != text:
                raise ValueError("the value must be UTF-8 without NUL characters")
            if place and (not text or {"\n", "\r"} & set(text)):
                raise ValueError("the name must be one line of text, and not empty")
        return value

    @pydantic.model_validator(mode="before")
    @classmethod
    def _gather_dotted(cls, values: object) -> object:
        """Move keys such as ``objective.temperature`` into ``objective_settings``."""
        if not isinstance(values, Mapping):
            return values
        plain = {k: v for k, v in values.items() if not dotted_key(cls, str(k))}
        for prefix in cls.dotted:
            inner = {
                str(k)[len(prefix) + 1 :]: v
                for k, v in values.items()
                if str(k).startswith(prefix + ".")
            }
            collected = plain.get(f"{prefix}_settings", {})
            if isinstance(collected, Mapping):
                merged = {**collected, **inner}
                plain[f"{prefix}_settings"] = {k: _number(v) for k, v in merged.items()}
        return plain

    @classmethod
    def collected(cls) -> list[str]:
        """Return the fields that store settings with a dot, such as ``objective_settings``."""
        return [f"{prefix}_settings" for prefix in cls.dotted]

    @classmethod
    def positionals(cls) -> dict[str, str]:
        """Return a dict from each field without a flag to the name of the field in messages."""
        extras = {name: extra_of(field) for name, field in cls.model_fields.items()}
        return {name: extra["metavar"] for name, extra in extras.items() if "positional" in extra}

    @classmethod
    def ordered(cls) -> dict[str, FieldInfo]:
        """Return the fields in the order of the help."""
        return dict(cls.model_fields)

    def to_yaml(self, without: Collection[str] = ()) -> str:
        """Return the settings as YAML for ``--config``, without the fields in ``without``."""
        import yaml

        values = self.model_dump()
        fields = {k: v for k, v in self.ordered().items() if k not in self.collected()}
        # an empty list is written only if it is not the default: it means no logger at all
        usual = {k: v.get_default(call_default_factory=True) for k, v in fields.items()}
        listed = {
            flag(name): values[name]
            for name in fields
            if name not in without
            if values[name] not in (None, []) or (values[name] == [] and usual[name])
        }
        for prefix, name in zip(self.dotted, self.collected(), strict=True):
            listed |= {f"{prefix}.{k}": v for k, v in values[name].items()}
        return str(yaml.safe_dump(listed, sort_keys=False, allow_unicode=True))

    @classmethod
    def dotted_names(cls) -> list[str]:
        """Return the names of all settings with a dot, such as ``objective.temperature``."""
        return []

    @classmethod
    def signature(
        cls, function: Callable[..., object], without: Sequence[str] = ()
    ) -> inspect.Signature:
        """Return the signature of ``function``, with the settings in place of ``**keywords``.

        The default of a setting that ``--recipe auto`` chooses is shown as :class:`ByRecipe`.
        """
        signature = inspect.signature(function)
        *own, _ = signature.parameters.values()
        keywords = []
        for name, field in cls.ordered().items():
            extra = extra_of(field)
            if name in {*without, *signature.parameters} or "positional" in extra:
                continue
            annotation = extra.get("python", field.annotation)
            keyword = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
            if not field.is_required():
                usual = field.get_default(call_default_factory=True)
                shown = ByRecipe(usual) if BY_RECIPE in field.metadata else usual
                keyword = keyword.replace(default=shown)
            keywords.append(keyword)
        return signature.replace(parameters=[*own, *keywords])

    @classmethod
    def check_name(cls, key: str, *, source: str = "") -> None:
        """Raise an error unless the key is the name of a setting."""
        if not dotted_key(cls, key) and key.replace("-", "_") not in cls.model_fields:
            names = [flag(n) for n in cls.model_fields if n not in cls.collected()]
            name = intended_name(key, [*names, *cls.dotted_names()])
            meant = named(name or "")
            hint = f" (did you mean {spell(meant, as_key) if source else meant}?)" if name else ""
            raise SettingError(f"unknown setting{hint}", setting=key, source=source)

    @classmethod
    def by_field(cls, values: Mapping[str, Any], *, source: str = "") -> dict[str, Any]:
        """Return ``values`` with hyphens in the names replaced by underscores, as in the fields."""
        fields: dict[str, Any] = {}
        for key, value in values.items():
            name = key if dotted_key(cls, str(key)) else str(key).replace("-", "_")
            if name in fields:
                raise SettingError("is given twice", setting=name, source=source)
            fields[name] = value
        return fields

    @classmethod
    def read(cls, values: Mapping[str, Any], *, source: str = "") -> Self:
        """Check ``values``, and return them as settings."""
        plain = cls.by_field(values, source=source)
        for key in plain:
            cls.check_name(key, source=source)
        try:
            settings = cls.model_validate(plain)
        except pydantic.ValidationError as error:
            errors = error.errors()  # report a wrong value before a missing one
            first = next((e for e in errors if e["type"] != "missing"), errors[0])
            place = ".".join(map(str, first["loc"][:2]))
            prefix, _, key = place.partition("_settings.")
            name = f"{prefix}.{key}" if key else place.partition(".")[0]
            if first["type"] == "missing":
                problem = f"is missing; add it: {cls.model_fields[name].description}"
                raise SettingError(problem, setting=name, source=source) from None
            problem = first["msg"].removeprefix("Value error, ")
            raise SettingError(
                f"{problem[:1].lower()}{problem[1:]}",
                setting=name,
                value=first["input"],
                source=source,
            ) from None
        if not cls.from_file:  # settings from a file are checked when the run begins
            settings.check_used()
        return settings

    def check_used(self, note: Callable[[str], object] = _print, **facts: object) -> None:
        """Report the settings that differ from their defaults, but have no effect in this run.

        Args:
            note: Function that is called with one line, if the unused settings are no error.
            facts: What is known about the run, e.g. ``pictures=True``. If there are facts, only
                the conditions that depend on a fact are checked.

        Raises:
            NotUsed: An unused setting is an error (its :class:`Used` has ``note=False``).
        """
        unused = list(self._not_used(facts))
        wrong = [each for each in unused if not each.is_note]
        listed = [f"{named(each.name, each.value)} ({each.why})" for each in wrong or unused]
        if wrong:
            problem = f"change what this run cannot use: {', '.join(listed)}"
            raise NotUsed(problem, setting=wrong[0].name, value=wrong[0].value)
        if unused:
            note(spell(f"given, but not used in this run: {', '.join(listed)}"))

    def _not_used(self, facts: Mapping[str, object]) -> Iterator[_Unused]:
        """Yield each given setting that has no effect; for a dict of settings, each of its keys."""
        known = {**dict(self), **facts}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value == field.get_default(call_default_factory=True):
                continue
            for used in extra_of(field).get("used", ()):
                names = inspect.signature(used.when).parameters.keys()
                ready = names <= known.keys() and (not facts or names & facts.keys())
                if ready and not used.when(**{name: known[name] for name in names}):
                    prefix, dotted, _ = name.rpartition("_settings")
                    inner = {f"{prefix}.{k}": v for k, v in value.items()} if dotted else {}
                    why = used.otherwise.format(**known)
                    for key, part in (inner or {name: value}).items():
                        yield _Unused(key, part, why, used.note)
                    break


def extra_of(field: FieldInfo) -> dict[str, Any]:
    """Return the dict of properties that :func:`setting` stored in a field."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def dotted_key(cls: type[Settings], key: str) -> bool:
    """Return True if ``key`` is a setting with a dot, such as ``objective.temperature``."""
    return any(key.startswith(prefix + ".") for prefix in cls.dotted)


def flag(name: str) -> str:
    """Return a field's name as flags and YAML keys spell it."""
    return name.replace("_", "-")


def _number(value: object) -> object:
    """Convert the text of a number to a number, and a boolean to text; keep any other value."""
    try:
        return str(value).lower() if isinstance(value, bool) else float(cast("float", value))
    except (TypeError, ValueError, OverflowError):
        return value


def _split(value: list[str]) -> list[str]:
    """Split at commas: ``anchor,positive`` means two names."""
    names = [name.strip() for item in value for name in item.split(",")]
    if not all(names):
        raise ValueError("remove a comma: one of the names is empty")
    return names


Names = Annotated[
    list[Annotated[str, pydantic.Field(coerce_numbers_to_str=True)]],
    pydantic.AfterValidator(_split),
]
"""Names, which may be separated by commas."""
