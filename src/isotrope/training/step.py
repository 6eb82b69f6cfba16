"""What a training step of text and one of images have in common."""

__all__ = ["step_seed"]


def step_seed(seed: int, step: int, process: int = 0) -> int:
    """Return the random seed of one step in one process, a function of these three alone."""
    mixed = seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + process * 0x94D049BB133111EB
    return (mixed + 1) % 2**63
