"""One of several processes of a run, started by :mod:`isotrope.methods.launch`."""

import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrope.core.errors import Diverged, InputError, LostProcess

if TYPE_CHECKING:
    from isotrope.methods.run import Outcome

__all__ = ["main"]

_INPUT = 0  # a pipe of the launcher's, who writes nothing: it ends with it


def main(folder: Path) -> int:
    """Do what ``folder/run.json`` says; leave the result, or the error, in the folder."""
    threading.Thread(target=_follow, daemon=True).start()
    try:
        return _train(folder)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Diverged as error:
        return _report(folder, "diverged", str(error))
    except InputError as error:
        return _report(folder, "input", str(error))
    except LostProcess as error:
        return _report(folder, "lost", str(error))
    except Exception:
        return _report(folder, "bug", traceback.format_exc())


def _text(settings: dict[str, Any], **how: bool) -> "Outcome":
    from isotrope.methods.settings import TrainSettings
    from isotrope.methods.training import train

    return train(TrainSettings.read(settings), **how)


def _images(settings: dict[str, Any], **how: bool) -> "Outcome":
    from isotrope.methods.image_settings import ImageSettings
    from isotrope.methods.image_training import train

    return train(ImageSettings.read(settings), **how)


_TRAIN = {"text": _text, "images": _images}


def _train(folder: Path) -> int:
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    sys.argv = run["command"]  # what the provenance of the run shall say
    outcome = _TRAIN[run["kind"]](run["settings"], resume=run["resume"], lines=run["lines"])
    if os.environ["RANK"] == "0":
        outcome.result.save(folder / "result.json")
    return outcome.exit_code


def _report(folder: Path, kind: str, message: str) -> int:
    report = json.dumps({"kind": kind, "message": message})
    (folder / f"error-{os.environ['RANK']}.json").write_text(report, encoding="utf-8")
    return 1


def _follow() -> None:
    """End, with a checkpoint, when whoever started us is gone."""
    os.read(_INPUT, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
