"""The command line: ``main`` finds the command, and each command is parsed in a file of its own.

A command's file parses the arguments, calls one function and prints one table; it holds no logic.
``--help`` loads neither torch nor any other heavy library.
"""
