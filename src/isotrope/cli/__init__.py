"""Floor 7: the command line; ``main`` finds the verb, one file parses each verb and calls a room.

A verb's file parses, calls one function and prints one table; it holds no logic. ``--help`` loads
neither torch nor any other heavy library.
"""
