"""The command line: ``main`` picks the command; each command parses its arguments in its own file.

A command's file parses the arguments, calls one function and prints one table; it holds no logic.
``--help`` loads neither torch nor any other heavy library.
"""
