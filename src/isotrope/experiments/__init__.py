"""Floor 6: experiments: what they run, and how results become tables."""
