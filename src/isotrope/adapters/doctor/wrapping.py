"""Wraps a trainer's function so that the doctor receives the result of each call."""

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["calling_after"]


def calling_after(
    function: Callable[..., Any], after: Callable[[Any], object]
) -> Callable[..., Any]:
    """Return ``function`` wrapped: after each call ``after`` receives the result.

    Args:
        function: of any signature, which stays.
        after: takes the result; it must not raise.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        after(result)
        return result

    return wrapper
