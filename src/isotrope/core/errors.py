"""The errors that a user can cause: each says in one line what was wrong and what to do."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator

__all__ = [
    "CannotResume",
    "Diverged",
    "InputError",
    "LostProcess",
    "MissingExtra",
    "NeedsEager",
    "NoPerAnchor",
    "NoTerms",
    "Overflow",
    "WrongCoupling",
    "nearest",
    "needs_extra",
]


class InputError(ValueError):
    """Something the user gave is wrong. The command line prints it on one line and exits with 2."""


class CannotResume(InputError):
    """A run cannot be resumed: its settings differ, or its files are damaged."""


class Diverged(InputError):
    """A loss or a gradient is not finite, so the training cannot continue."""


class LostProcess(RuntimeError):
    """One of the processes of a run has ended unexpectedly: it was killed, or its machine was lost.

    The command line prints it on one line and exits with 75, as when a scheduler stops a run.
    """


class MissingExtra(InputError):
    """An optional dependency is not installed.

    Args:
        package: the import name that failed, e.g. ``"pyarrow"``.
        extra: the extra of isotrope that brings it, e.g. ``"train"``.
    """

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}, which is not installed: "
            f"pip install '.[{extra}]' in a checkout of isotrope"
        )


@contextlib.contextmanager
def needs_extra(extra: str, *packages: str) -> Iterator[None]:
    """Import what needs an extra of isotrope.

    Args:
        extra: that brings the packages.
        packages: the import names.

    Raises:
        MissingExtra: one of the packages is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        raise MissingExtra(error.name, extra=extra) from error


class NeedsEager(RuntimeError):
    """A second derivative was requested from a backend that has none."""


class NoPerAnchor(TypeError):
    """One value per anchor was requested from a batch-level objective, which has one per batch."""


class NoTerms(TypeError):
    """An objective has no gradient components: they exist for whole objectives on the sphere.

    Args:
        objective: its class.
        space: what its formula sees; ``sphere`` for a part of an objective.
    """

    def __init__(self, objective: str, space: str) -> None:
        why = (
            "they are those of the whole, of which it is a part; ask the whole"
            if space == "sphere"
            else "they are defined on the unit sphere, and this one sees its input as "
            f"{space!r}; use its formula, or decompose it numerically"
        )
        super().__init__(f"{objective} has no gradient components: {why}")


class Overflow(InputError, OverflowError):
    """A hyperparameter at which the dtype of the embeddings overflows: refused, not computed."""


class WrongCoupling(InputError):
    """An objective declares its anchors to be coupled in another way than its formula has them."""


def nearest(word: str, words: Iterable[str], *, alike: float = 0.5) -> str:
    """Return ``" (did you mean 'infonce'?)"`` for the closest of ``words``, or ``""``.

    Args:
        word: as it was written.
        words: as they are known.
        alike: difflib's ratio, from 0 to 1, below which words have nothing to do with each other.
    """
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=alike)
    return f" (did you mean {close[0]!r}?)" if close else ""
