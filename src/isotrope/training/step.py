"""The seed of a step, for text and images alike."""


def step_seed(seed: int, step: int, process: int = 0) -> int:
    """Return the random seed of one step in one process, a function of these three alone."""
    # odd constants of 64 bits, as splitmix64 has, keep neighbouring seeds and steps apart
    mixed = seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + process * 0x94D049BB133111EB
    return (mixed + 1) % 2**63
