"""Spells settings in messages as the command line, Python or a YAML file would.

A message contains ``use `--head none```, in backticks. The command line prints it as ``use --head
none`` and Python as ``use head='none'``; with settings of a YAML file it is ``head: none``.
"""

import contextlib
import re
import reprlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

Spelling = Callable[[str, str], str]
"""Writes the name of a field of the settings and a value, which may be empty."""

_NAMED = re.compile(r"`--([a-z][\w.-]*)(?: ([^`]*))?`")
# characters that a shell interprets, and spaces within a list
_FOR_A_SHELL = re.compile(r"[;|&<>()$*?!\"'\\#]|[^,]+ [^,]*,|,[^,]* ")
_LONGEST = 60  # characters of a value


def named(setting: str, value: object = None) -> str:
    """Return a setting in backticks, for a message; :func:`spell` writes it out.

    Args:
        setting: Field of the settings, or ``objective.temperature``.
        value: Value to show; None shows the name alone.
    """
    flag = f"--{setting.replace('_', '-')}"
    if value is None or value is True:
        return f"`{flag}`"
    if value is False:
        return f"`--no-{flag[2:]}`"
    values = value if isinstance(value, (list, tuple)) else [value]
    return f"`{' '.join([flag, *map(_word, values)])}`"


def _word(value: object) -> str:
    short = isinstance(value, Path) or (isinstance(value, str) and len(value) <= _LONGEST)
    text = str(value) if short else brief(value)
    return text.replace("`", "'")


def brief(value: object) -> str:
    """Return a short ``repr`` of any value for an error message."""
    short = reprlib.Repr()
    short.maxstring = short.maxlong = short.maxother = _LONGEST
    try:
        return short.repr(value)
    except ValueError:  # a number of more digits than Python prints
        return f"a very large {type(value).__name__}"


def as_flag(setting: str, value: str) -> str:
    """Return the form of the command line: ``--head none``."""
    one = " " in value and setting == "columns"  # and not several values
    word = shlex.quote(value) if one or _FOR_A_SHELL.search(value) else value
    return f"--{setting.replace('_', '-')} {word}".rstrip()


def as_key(setting: str, value: str) -> str:
    """Return the form of a YAML file: ``head: none``."""
    return f"{setting.replace('_', '-')}: {value}".removesuffix(": ")


def as_argument(setting: str, value: str) -> str:
    """Return the form of Python: ``head='none'``; a word in capitals stands for a value."""
    prefix, dot, key = setting.partition(".")
    word = value if value.isupper() or _is_number(value) else repr(value)
    if dot:
        return f"{prefix}_settings={{{key!r}: {word if value else '...'}}}"
    name = setting.replace("-", "_")
    if name.startswith("no_") or name == "resume":
        return f"{name.removeprefix('no_')}={name == 'resume'}"
    return f"{name}={word}" if value else name


def _is_number(word: str) -> bool:
    with contextlib.suppress(ValueError):
        return float(word) is not None
    return False


_spelling: Spelling = as_argument


def spell(message: str, spelling: Spelling | None = None) -> str:
    """Return a message with its settings spelled out, by default as :func:`spelled` chose."""
    write = spelling or _spelling
    return _NAMED.sub(lambda match: write(match[1], match[2] or ""), message)


@contextlib.contextmanager
def spelled(spelling: Spelling) -> Iterator[None]:
    """Spell settings in this way within the block; elsewhere they are spelled as in Python."""
    global _spelling  # for the whole process, because its threads print errors as well
    before, _spelling = _spelling, spelling
    try:
        yield
    finally:
        _spelling = before
