"""The program ``isotrope``: runs a command, and turns an error into one line and an exit code.

Exit codes: 0 done; 1 a bug; 2 bad input; 75 a scheduler stopped the run, or a process of the run
died; 130 Ctrl-C.
"""

import argparse
import atexit
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from isotrope import __version__
from isotrope.cli.arguments import Parser
from isotrope.core.errors import InputError, LostProcess, memory_is_full, needs_extra, unknown
from isotrope.core.legible import LegibleStream, legible
from isotrope.core.spelling import as_flag, named, spell, spelled

SHELLS = ("bash", "zsh")

# one line each; the modules are imported only when used
VERBS = {
    "train": "fine-tune a sentence encoder on texts, pairs or scored pairs",
    "train-images": "train an image encoder on unlabelled images",
    "evaluate": "score encoders by STS, transfer, retrieval, kNN or a linear probe; compare them",
    "encode": "write the embeddings of texts or pictures to a file, as a matrix",
    "search": "find the lines of a file, or the pictures, that are closest to a query",
    "objectives": "list the objectives (losses), or show the formula and settings of one",
    "check": "check that a loss has the same gradient if its batch is split or permuted",
    "simulate": "plot a loss's gradient over the angles to the positive and the negatives",
    "audit": "find wrong pairs and false negatives before training, and recommend settings",
    "diagnose": "name what is wrong with a run or a model, and what to change",
    "sweep": "train with several values of some settings, and find the best values",
    "report": "compare runs in one HTML file",
}

_LONGEST = 2000  # characters of a message, because a name in it may be very long
_SILENT = 5.0  # seconds after which a line says that libraries are still being loaded

EXAMPLES = """\
examples:
  isotrope train sentences.txt --dev auto --output runs/first
  isotrope train pairs.tsv --objective infonce --objective.temperature 0.05 --output runs/pairs
  isotrope train sentences.txt --objective barlowtwins --objective.dissipation margin:0.3 \\
      --objective.weight softmax:0.05 --objective.ratio 1.5 --output runs/edited
  isotrope evaluate runs/first --sts DIR
  isotrope search runs/first sentences.txt "what you are looking for"
  isotrope diagnose runs/first
  isotrope report runs/first runs/edited
  isotrope objectives infonce
  isotrope simulate dissipation --objective infonce

`isotrope COMMAND --help` explains one command.
"""


def _parser() -> Parser:
    verbs = "\n".join(f"  {name:<13}{line}" for name, line in VERBS.items())
    parser = Parser(
        prog="isotrope",
        usage="isotrope COMMAND ...",
        description="Fine-tune text and image embedding models, and see what a loss does to "
        f"them.\n\ncommands:\n{verbs}",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"isotrope {__version__}")
    parser.add_argument(
        "--print-completion",
        metavar="|".join(SHELLS),
        choices=SHELLS,
        help="print the script that completes commands and flags in a shell; to use it, write "
        'eval "$(isotrope --print-completion bash)" into the start file of the shell',
    )
    return parser


def _dispatch(arguments: Sequence[str], stack: ExitStack) -> int:
    """Run the command that the first argument names; the stack is closed after its last message."""
    parser = _parser()
    if not arguments or arguments[0].startswith("-"):
        shell = parser.parse_args(arguments).print_completion
        if shell is None:
            parser.print_help()
            return 0 if arguments else 2
        print(_completion(shell, parser))
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        raise InputError(unknown("unknown command", verb, VERBS))
    from isotrope.cli.command import load

    timer = threading.Timer(_SILENT, _say_loading)
    timer.daemon = True
    if "--no-progress" not in rest:
        timer.start()
        stack.callback(timer.cancel)
    command = load(verb)
    stack.enter_context(spelled(command.spelling))
    return command(rest)


def _say_loading() -> None:
    """Print a line if modules are still being imported."""
    specs = [getattr(module, "__spec__", None) for module in [*sys.modules.values()]]
    if any(getattr(spec, "_initializing", False) for spec in specs):
        print("loading libraries, such as torch and transformers", file=sys.stderr, flush=True)


def _completion(shell: str, root: Parser) -> str:
    """Return the completion script for a shell."""
    import shtab

    from isotrope.cli.command import load

    parser = argparse.ArgumentParser(prog=root.prog, parents=[root], add_help=False)
    subparsers = parser.add_subparsers()
    for verb, line in VERBS.items():
        made = load(verb).parser()
        for action in made._actions:
            _offer(action, shtab.FILE)
        subparsers.add_parser(verb, parents=[made], add_help=False, help=line)
    text: str = shtab.complete(parser, shell=shell)
    return text


def _offer(action: argparse.Action, file: dict[str, Any]) -> None:
    """Set the completions of a flag's value: names of objectives, the flag's choices, or files."""
    from isotrope.paradigm.declared import declared

    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.dest == "objective":
        action.choices = sorted(declared())
    elif "|" in metavar:
        action.choices = metavar.split("|")
    elif action.choices is not None:
        action.choices = list(action.choices)  # shtab reads a dictionary as commands
    elif action.nargs != 0:
        action.complete = file  # type: ignore[attr-defined] # where shtab looks for it


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    code = guarded(sys.argv[1:] if arguments is None else arguments)
    if os.environ.get("WORLD_SIZE", "") not in ("", "1"):
        # torchrun calls a finished training failed if a thread of a library aborts at exit
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def guarded(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code. For bad input, print one line on stderr."""
    with ExitStack() as stack:
        stack.enter_context(spelled(as_flag))
        try:
            _prepare_streams()
            _prepare_environment()
            return _run_with_legible_output(arguments, stack)
        except InputError as error:
            return _print_error(str(error))
        except LostProcess as error:
            return _print_error(str(error), code=75)
        except BrokenPipeError:
            # the program that reads our output has ended (`| head`), which is not an error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (MemoryError, RuntimeError, ImportError) as error:
            if not memory_is_full(error):
                raise
            return _print_error(_advice_on_memory(arguments[0] if arguments else "", error))
        except OSError as error:
            # such as a name that is too long or a full disk: not a bug, so no traceback
            place = f"{error.filename}: " if error.filename else ""
            return _print_error(f"{place}{error.strerror or error}")
        except KeyboardInterrupt:
            print("isotrope: interrupted", file=sys.stderr)
            return 128 + signal.SIGINT


def _prepare_streams() -> None:
    """Make standard output and standard error writable."""
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        raise InputError("send standard output to a file or to /dev/null: it is closed")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names may not be UTF-8


def _prepare_environment() -> None:
    """Set the variables that the user has not set, and check how Python runs."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # forked workers warn otherwise
    # waiting threads sleep: by default they spin, and if another process uses the same cores, a
    # step takes up to eight times as long (docs/LOG.md)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("PYTHON_COLORS", "0")  # of help, from Python 3.14 on
    # the libraries send no usage statistics
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    if sys.flags.optimize > 1:
        raise InputError("run Python without -OO: it removes docstrings, which transformers needs")


def _run_with_legible_output(arguments: Sequence[str], stack: ExitStack) -> int:
    """Run the command line; any terminal can show what it prints."""
    out = LegibleStream(sys.stdout)
    err = LegibleStream(sys.stderr, needed=False)  # `2>&1 | head` must not end a training
    with redirect_stdout(cast("TextIO", out)), redirect_stderr(cast("TextIO", err)):
        try:
            with needs_extra():
                code = _dispatch(arguments, stack)
        except SystemExit as stop:  # of --help and --version; a plugin may exit with a text
            if isinstance(stop.code, str):
                print(stop.code, file=sys.stderr)
                code = 1
            else:
                code = stop.code or 0
        sys.stdout.flush()
    return code


def _advice_on_memory(verb: str, error: BaseException) -> str:
    """Return the message on full memory, with the settings of the command that need less."""
    from isotrope.cli.command import load

    known = load(verb).settings.model_fields if verb in VERBS else {}
    less = [named(name) for name in ("batch_size", "micro_batch", "grid") if name in known]
    remedy = f"lower {' or '.join(less)}" if less else "give a shorter input"
    reason = str(error).strip() or "none left"
    return spell(f"{remedy}, or use a larger machine: not enough memory ({reason})")


def _print_error(message: str, *, code: int = 2) -> int:
    """Print the error on one line that any terminal can show; return the exit code."""
    line = legible(" ".join(message.split()))
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST - 500]} ... {line[-500:]}"
    print(f"isotrope: error: {line}", file=sys.stderr)
    return code
