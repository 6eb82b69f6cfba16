"""``isotrope diagnose``: report what is wrong with a run or a model, and what to change."""

from pathlib import Path

from isotrope.cli.command import Command, OfObjective, as_json, plugin
from isotrope.core.settings import Names, Used, setting
from isotrope.encoders.names import resolve

EPILOG = """\
examples:
  isotrope diagnose runs/first
  isotrope diagnose runs/first --json
  isotrope diagnose OUTPUT_DIR
  isotrope diagnose all-MiniLM-L6-v2
  isotrope diagnose path/to/model --data my-texts.txt
  isotrope diagnose path/to/model --data pairs.tsv --objective infonce --objective.temperature 0.1
  isotrope diagnose path/to/image-model --data photos/

For a run, the command examines the log, the dev scores, the settings and the saved model, and
writes the diagnosis to RUN/diagnosis.json, which `isotrope report` shows. It embeds the data of the
run only if you made the run on this machine; otherwise name data with --data.
For a model, it examines the embeddings of --data, or of docstrings of Python's standard library.
For texts, it also prints statistics of Li et al. (2024): angles, cosines, the hardest negative's
share of the push, and ratios of pull to push. It also measures by how much whitening raises the
score. Typically, the score more than doubles if the encoder was never trained on pairs (raw), does
not rise after a training on pairs (trained), and rises, but does not double, if a training of
another kind followed the one on pairs (disturbed).
For the OUTPUT_DIR of another trainer, it examines the file that isotrope.Doctor() wrote there.

The first finding is the likely cause; findings that follow from it are left out. Each finding shows
the measured numbers, the thresholds that decide it, their source, and one setting to change.
docs/diagnosis.md lists all thresholds.

exit codes: 0 done, whatever it found; 1 a bug; 2 bad input.
"""


class DiagnoseSettings(OfObjective):
    """Settings of ``isotrope diagnose``."""

    target: str = setting(
        ...,
        "Folder of a run or of a model, name of a model, or folder to which isotrope.Doctor, the "
        "callback for other trainers, wrote.",
        "RUN_OR_MODEL",
        positional=True,
    )
    data: str | None = setting(
        None, "Text, pairs or images to embed.", "FILE", shown="the data of the run"
    )
    columns: Names = setting(
        [],
        "Columns of a table, as in training.",
        used=Used(lambda data: data, "needs `--data FILE`"),
    )
    objective: str | None = setting(
        None,
        "Objective whose gradient is measured on the data. Its settings are --objective.SETTING "
        "VALUE.",
    )
    plugin: list[Path] = plugin()
    as_json: bool = as_json()


def diagnose(settings: DiagnoseSettings) -> int:
    """Diagnose the target, and print the findings."""
    if not Path(settings.target).exists():  # then it must be the name of a model
        resolve(settings.target)
    from isotrope.diagnostics import target

    diagnosis = target.diagnose(
        settings.target,
        data=settings.data,
        columns=settings.columns or None,
        objective=settings.objective,
        objective_settings=settings.objective_settings,
        plugins=settings.plugin,
    )
    print(diagnosis.to_json().rstrip() if settings.as_json else diagnosis)
    return 0


run = Command(
    "diagnose",
    DiagnoseSettings,
    diagnose,
    "Find out why a run collapsed, stalled or overfitted, and what to change.",
    EPILOG,
)
