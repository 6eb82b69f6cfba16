"""What a test expects of an error: its class and its fields, not its sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from isotrope.core.errors import InputError, NotUsed, SettingError


@contextmanager
def refused(kind: type[InputError] = InputError, **fields: Any) -> Iterator[None]:
    """Expect an error of this very class, with these fields, on one line."""
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) in (kind, NotUsed if kind is SettingError else kind)
    assert {name: getattr(caught.value, name) for name in fields} == fields
    assert len(str(caught.value).splitlines()) == 1


def refused_setting(name: str, **fields: Any) -> Any:
    """Expect a setting to be refused."""
    return refused(SettingError, setting=name, **fields)
