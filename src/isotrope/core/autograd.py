"""The context of an autograd function: torch gives it no type, for it takes any attribute."""

from typing import Any, TypeAlias

__all__ = ["Context"]

Context: TypeAlias = Any
"""What ``forward`` leaves for ``backward``."""
