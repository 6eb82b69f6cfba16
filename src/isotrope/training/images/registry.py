"""Finds the methods on images by name, and builds their options from settings."""

import importlib
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from isotrope.core.errors import InputError, unknown
from isotrope.core.hyper import hypers, value_of
from isotrope.core.image_methods import METHODS

if TYPE_CHECKING:
    from isotrope.training.images.method import ImageMethod, Options


def find_method(name: str) -> "type[ImageMethod]":
    """Import and return the class of a method, whose name may be in upper case."""
    if name.lower() not in METHODS:
        raise InputError(unknown("unknown method", name, METHODS))
    record = METHODS[name.lower()]
    module = importlib.import_module(f"isotrope.training.images.{record.file}")
    method: type[ImageMethod] = getattr(module, record.cls)
    return method


def options_of(name: str, settings: Mapping[str, Any] | None = None) -> "Options":
    """Return the options of a method; options that are not given have their defaults.

    Args:
        name: Name of the method.
        settings: Values by option; they may be the text of flags.
    """
    cls = find_method(name).options_class
    fields = hypers(cls)
    whole = {k for k, kind in typing.get_type_hints(cls).items() if kind is int}
    values: dict[str, Any] = {}
    for key, value in (settings or {}).items():
        if key not in fields:
            raise InputError(unknown(f"method {name} has no option", key, fields))
        try:
            values[key] = value_of(fields[key], value)
        except ValueError as error:
            raise InputError(f"method {name}: {key} must be {error}") from None
        if key in whole:
            if not values[key].is_integer():
                raise InputError(f"method {name}: {key} must be a whole number; found {value!r}")
            values[key] = int(values[key])
    try:
        return cls(**values)
    except ValueError as error:
        raise InputError(f"method {name}: {error}") from None
