"""Errors that a user can cause. Each message names a problem and a remedy."""

import contextlib
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from isotrope.core.legible import legible
from isotrope.core.spelling import as_key, named, spell

_VERBS = {"changes", "has", "is", "must", "needs", "takes"}
"""If a problem begins with one of these verbs, the message has no colon before it."""

_BROUGHT_BY = {"PIL": "pillow", "markupsafe": "jinja2", "yaml": "pyyaml"}
_BROUGHT_BY |= dict.fromkeys(("joblib", "sklearn"), "scikit-learn")
_BROUGHT_BY |= dict.fromkeys(("huggingface_hub", "safetensors", "tokenizers"), "transformers")
"""The requirement that installs a package, by import name, if it has another name."""


class InputError(ValueError):
    """An input of the user is wrong. The command line prints the message and exits with code 2.

    Args:
        problem: The message, with the remedy first; or, with ``remedy``, only what is wrong.
            Settings are in backticks: `` `--head none` ``.
        remedy: What the user can do, if the message ends with it.
    """

    def __init__(self, problem: str = "", *, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy

    def text(self) -> str:
        """Return the message with settings in backticks; ``str`` writes flags or arguments."""
        return f"{self.problem}{self.remedy and '; '}{self.remedy}"

    def __str__(self) -> str:
        return spell(self.text())


class SettingError(InputError):
    """A setting is unknown, missing, out of bounds, or does not fit the other settings.

    Args:
        problem: What is wrong with the setting.
        setting: Name of the setting, such as ``batch_size`` or ``objective.temperature``.
        value: Given value of the setting; None if the message should not show the value.
        remedy: What the user can do.
        source: YAML file that contains the setting; empty for a flag or an argument.
    """

    def __init__(
        self,
        problem: str = "",
        *,
        setting: str = "",
        value: object = None,
        remedy: str = "",
        source: str = "",
    ) -> None:
        super().__init__(problem, remedy=remedy)
        self.setting = setting
        self.value = value
        self.source = source

    @property
    def subject(self) -> str:
        """The setting, spelled as in the file if it comes from a file."""
        name = named(self.setting, self.value) if self.setting else ""
        if not self.source:
            return name
        return f"{self.source}: {spell(name, as_key)}" if name else self.source

    def text(self) -> str:
        """Return the message, which begins with the setting."""
        colon = "" if self.problem.partition(" ")[0] in _VERBS else ":"
        return f"{self.subject}{colon} {super().text()}" if self.subject else super().text()


class NotUsed(SettingError):
    """Some given settings have no effect; ``setting`` and ``value`` belong to the first of them."""

    @property
    def subject(self) -> str:
        """Empty, because the problem lists the settings."""
        return ""


class CannotResume(InputError):
    """A run cannot be resumed: its settings differ, or its files are damaged."""


class Diverged(InputError):
    """A loss or a gradient is not finite, so the training cannot continue."""


class LostProcess(RuntimeError):
    """A process of a run with several processes was killed, or its machine was lost.

    The command line prints the message and exits with code 75, as after a stop by a scheduler.
    """

    def __str__(self) -> str:
        return spell(super().__str__())


class MissingExtra(InputError):
    """An optional dependency is not installed.

    Args:
        package: Import name that failed, e.g. ``"pyarrow"``.
        extra: Name in ``pip install '.[NAME]'`` that installs the package, e.g. ``"train"``.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package)
        self.args = (package, extra)  # with these, pickle makes the error again
        self.package = package
        self.extra = extra

    def text(self) -> str:
        """Return the message: the command that installs the package."""
        return (
            f"run pip install '.[{self.extra}]' in a checkout of isotrope: this step needs the "
            f"package {self.package!r}, which is not installed"
        )


@contextlib.contextmanager
def needs_extra(extra: str = "") -> Iterator[None]:
    """Raise :class:`MissingExtra` for a missing package, with ``extra`` if it has the package."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extras = _extras_with(package)
        if not extras:
            raise
        raise MissingExtra(package, extra=extra if extra in extras else extras[0]) from error


def _extras_with(package: str) -> list[str]:
    """Return the extras that install a package, the smallest first."""
    name, needs = _BROUGHT_BY.get(package, package.replace("_", "-")), list[list[str]]()
    with contextlib.suppress(metadata.PackageNotFoundError):  # the sources alone
        needs = [re.findall(r"[\w.-]+", need) for need in metadata.requires("isotrope") or ()]
    sizes = Counter(words[-1] for words in needs if "extra" in words)
    found = {words[-1] for words in needs if words[0] == name} & {*sizes}
    return sorted(found, key=lambda extra: (sizes[extra], extra))


class NeedsEager(RuntimeError):
    """A backend cannot compute a second derivative; the backend ``eager`` can."""


class NoPerAnchor(TypeError):
    """One loss per anchor was requested from an objective that has only a loss of the batch."""


class NoTerms(TypeError):
    """Gradient components (GD, W, R) were requested from an objective that defines none.

    Args:
        objective: Name of the objective's class.
        space: Space of the embeddings. For ``"sphere"``, it is a part or only a formula.
    """

    def __init__(self, objective: str, space: str) -> None:
        super().__init__(objective, space)

    def __str__(self) -> str:
        objective, space = self.args
        why = (
            "use the whole objective if this is a part of one; otherwise write the components (see "
            "CONTRIBUTING.md), or call isotrope.decompose(objective, anchors, positives)"
            if space == "sphere"
            else "compute them with isotrope.decompose(); only objectives on the unit sphere "
            f"define components, and this objective is defined on the space {space!r}"
        )
        return f"{objective} has no gradient components: {why}"


class Overflow(InputError, OverflowError):
    """A hyperparameter makes the loss or its gradient too large for the embeddings' dtype."""


class WrongCoupling(InputError):
    """An objective's ``coupling`` (how anchors depend on each other) does not fit its formula."""


def memory_is_full(error: BaseException) -> bool:
    """Return whether an error of Python, torch or the dynamic loader says that memory is full."""
    if isinstance(error, RuntimeError | ImportError):
        return any(w in str(error) for w in ("allocate memory", "out of memory", "map segment"))
    return isinstance(error, MemoryError)


def nearest(word: str, words: Iterable[str], *, alike: float = 0.5) -> str:
    """Return ``" (did you mean 'infonce'?)"`` if a known word is close to ``word``, else ``""``.

    Args:
        word: The word that was typed.
        words: The known words.
        alike: Lowest similarity (of ``difflib``, 0 to 1) that counts as close.
    """
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=alike)
    return f" (did you mean {close[0]!r}?)" if close else ""


def unknown(problem: str, word: str, known: Iterable[str]) -> str:
    """Return a message: ``problem``, the unknown word, a similar known word, all known words."""
    known = list(known)
    meant = nearest(word, known) or nearest(word.lower(), known)
    return f"{problem} {word!r}{meant}; known: {', '.join(known) or 'none'}"


class RowNumber(int):
    """Number of a row, from 1, in data whose rows are not the lines of a file."""


def place(path: str | Path, line: int | None = None) -> str:
    """Return ``"file, line 3"`` (or row), ``"file"`` or ``"line 3"``; escape control characters."""
    at = "" if line is None else f"{'row' if isinstance(line, RowNumber) else 'line'} {line}"
    return ", ".join(filter(None, (legible(str(path)), at)))


def unreadable(path: str | Path, error: Exception) -> InputError:
    """Return an error about a file or a folder that cannot be opened or read, and why."""
    why = getattr(error, "strerror", None) or error
    return InputError(f"{place(path)}: check the path; it cannot be read ({why})")


def first_line(error: Exception) -> str:
    """Return the first line of another library's error message, cut to about 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0] if lines else type(error).__name__
    return line if len(line) <= 300 else f"{line[:300].rsplit(' ', 1)[0]} ..."
