"""Floor 5: other people's loops and formats.

``mteb`` lets an encoder run in MTEB, and MTEB on STS sets that lie on this machine.
"""
