"""The command line: ``main`` finds the command; each command has its own file.

The file of a command parses the arguments, calls one function and prints the result. It has no
other logic. ``--help`` loads neither torch nor any other heavy library.
"""
