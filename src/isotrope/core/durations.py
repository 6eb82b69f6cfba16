"""Formats durations for people."""

__all__ = ["format_duration"]


def format_duration(seconds: float) -> str:
    """Return ``42 s``, ``3 min 20 s`` or ``5 h 10 min``."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"
