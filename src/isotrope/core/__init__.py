"""Records, errors, atomic file writes and locks, used by every other package; no learning."""
