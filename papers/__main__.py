"""``python -m papers``: reproduces the papers' tables and figures.

Exit codes: 0 done; 1 a bug; 2 bad input; 75 asked to stop by a scheduler, or a process was lost;
130 Ctrl-C.
"""

import importlib
import os
import signal
import sys
from collections.abc import Sequence

from isotrope.core import InputError, LostProcess

_COMMANDS = {
    "bench": "papers.bench",
    "encoder": "papers.encoder",
    "gpu": "papers.gpu",
    "starts": "papers.starts",
    "text": "papers.text_command",
}


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; bad input is one line on stderr."""
    # as isotrope's own command line sets them: its cli/main.py says why
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        command = arguments[0] if arguments else ""
        named = command in _COMMANDS
        module = importlib.import_module(_COMMANDS.get(command, "papers.reproduce"))
        code = int(module.run(arguments[1:] if named else arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # the reader of our output has gone (`| head`): nothing more to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InputError, LostProcess, OSError) as error:
        print(f"papers: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 75 if isinstance(error, LostProcess) else 2
    except KeyboardInterrupt:
        print("papers: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
