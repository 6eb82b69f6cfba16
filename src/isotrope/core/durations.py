"""Durations for people."""

__all__ = ["lasting"]


def lasting(seconds: float) -> str:
    """Return ``42 s``, ``3 min 20 s`` or ``5 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
