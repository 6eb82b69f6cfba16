"""Errors that a user can cause. Each message names a problem and a remedy."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path

from isotrope.core.legible import legible
from isotrope.core.spelling import as_key, named, spell

_VERBS = {
    *("changes", "chooses", "has", "is", "leaves", "makes", "must", "names", "needs", "reads"),
    *("shares", "takes"),
}
"""If a problem begins with one of these verbs, the message has no colon before it."""


class InputError(ValueError):
    """An input of the user is wrong. The command line prints the message and exits with 2.

    Args:
        problem: What is wrong, with settings in backticks: `` `--head none` ``.
        remedy: What to do.
    """

    def __init__(self, problem: str = "", *, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy

    @property
    def subject(self) -> str:
        """Subject of the error: a setting, a file, a folder or a model."""
        return ""

    def text(self) -> str:
        """Return the whole message, in which :func:`spell` replaces the settings in backticks."""
        colon = "" if self.problem.partition(" ")[0] in _VERBS else ":"
        about = f"{self.subject}{colon} " if self.subject else ""
        return f"{about}{self.problem}{self.remedy and '; '}{self.remedy}"

    def __str__(self) -> str:
        return spell(self.text())


class SettingError(InputError):
    """A setting is unknown, missing, out of bounds, or incompatible with others.

    Args:
        problem: What is wrong with the setting.
        setting: Name of the setting, such as ``batch_size`` or ``objective.temperature``.
        value: Given value of the setting, if the message should show it.
        remedy: What to do.
        source: YAML file that the setting comes from.
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


class NotUsed(SettingError):
    """Some given settings have no effect; ``setting`` and ``value`` describe the first of them."""

    @property
    def subject(self) -> str:
        """Empty, because the problem lists the settings."""
        return ""


class DataError(InputError):
    """A data file cannot be read or used."""

    def __init__(
        self,
        problem: str = "",
        *,
        path: str | Path = "",
        line: int | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(problem, remedy=remedy)
        self.path = path
        self.line = line

    @property
    def subject(self) -> str:
        """The file and, if known, the line."""
        return place(self.path, self.line)


class FolderError(InputError):
    """A run folder, a file in it, or an output cannot be used."""

    def __init__(self, problem: str = "", *, path: str | Path = "", remedy: str = "") -> None:
        super().__init__(problem, remedy=remedy)
        self.path = path

    @property
    def subject(self) -> str:
        """The path."""
        return place(self.path)


class CannotResume(FolderError):
    """A run cannot be resumed: its settings differ, or its files are damaged."""


class Diverged(InputError):
    """A loss or a gradient is not finite, so the training cannot continue."""


class LostProcess(RuntimeError):
    """One of the processes of a run has ended unexpectedly: it was killed, or its machine was lost.

    The command line prints the message and exits with 75, as it does when a scheduler stops a run.
    """

    def __str__(self) -> str:
        return spell(super().__str__())


class MissingExtra(InputError):
    """An optional dependency is not installed.

    Args:
        package: Import name that failed, e.g. ``"pyarrow"``.
        extra: Extra of isotrope that installs the package, e.g. ``"train"``.
    """

    def __init__(self, package: str, *, extra: str = "") -> None:
        super().__init__(package)
        self.package = package
        self.extra = extra

    def text(self) -> str:
        """Return what to install."""
        return (
            f"run pip install '.[{self.extra}]' in a checkout of isotrope: this needs the package "
            f"{self.package!r}, which is not installed"
        )


@contextlib.contextmanager
def needs_extra(extra: str, *packages: str) -> Iterator[None]:
    """Raise :class:`MissingExtra` if an import in the block fails for one of ``packages``."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in packages:
            raise
        raise MissingExtra(package, extra=extra) from error


class NeedsEager(RuntimeError):
    """A second derivative was requested from a backend that does not support it."""


class NoPerAnchor(TypeError):
    """One loss per anchor was requested from an objective that has only a loss of the batch."""


class NoTerms(TypeError):
    """Gradient components (GD, W, R) were requested from an objective that defines none.

    Args:
        objective: Class of the objective.
        space: Space of the formula's embeddings; ``sphere`` if the objective only pulls or pushes.
    """

    def __init__(self, objective: str, space: str) -> None:
        why = (
            "use the whole objective; this part of it only attracts or only repels"
            if space == "sphere"
            else "use its formula, or compute the components with decompose(); only objectives on "
            f"the unit sphere define them, and the space of this objective is {space!r}"
        )
        super().__init__(f"{objective} has no gradient components: {why}")


class Overflow(InputError, OverflowError):
    """With this hyperparameter, the loss or its gradient would overflow the embeddings' dtype."""


class WrongCoupling(InputError):
    """An objective's ``coupling`` (how anchors depend on each other) does not fit its formula."""


def nearest(word: str, words: Iterable[str], *, alike: float = 0.5) -> str:
    """Return ``" (did you mean 'infonce'?)"`` if a known word is close to ``word``, else ``""``.

    Args:
        word: The word that was typed.
        words: The known words.
        alike: Similarity (``difflib``, 0 to 1) below which words count as unrelated.
    """
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=alike)
    return f" (did you mean {close[0]!r}?)" if close else ""


def unknown(problem: str, word: str, known: Iterable[str]) -> str:
    """Return the message about an unknown word, with the known word that was probably meant."""
    known = list(known)
    meant = nearest(word, known) or nearest(word.lower(), known)
    return f"{problem} {word!r}{meant}; known: {', '.join(known) or 'none'}"


def place(path: str | Path, line: int | None = None) -> str:
    """Return ``"file, line 3"``, or only the file; control characters in its name are escaped."""
    name = legible(str(path))
    return name if line is None else f"{name}, line {line}"


def first_line(error: Exception) -> str:
    """Return the first line of another library's error message, cut to 200 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
