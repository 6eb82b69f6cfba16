"""``isotrope diagnose``: say what is wrong with a run or a model, and what to change."""

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

For a run, the command examines the log, the dev scores, the settings and the saved model. It also
writes the diagnosis to RUN/diagnosis.json for `isotrope report`. It embeds the run's own data only
if you made the run on this machine; otherwise name data with --data. For a model, it examines the
embeddings of --data; the default is pairs of docstrings of Python's own library. With --data of
text, it also prints the statistics of Li et al. (2024) (angles, cosines, the hardest share, Lemma 1
and dynamic ratios) and the scores with and without whitening. These scores show whether the encoder
is raw, disturbed or trained. For the OUTPUT_DIR of another trainer, it examines the record of
isotrope.Doctor().

The first finding is the likely root cause; its consequences are not listed. Each finding has its
numbers, their thresholds with the source, and one setting of `isotrope train` to change.
docs/diagnosis.md lists all thresholds.

exit codes: 0 whatever the verdict, 2 bad input, 1 a bug.
"""


class DiagnoseSettings(OfObjective):
    """Settings of ``isotrope diagnose``."""

    target: str = setting(
        ...,
        "Folder of a run, of a training that isotrope.Doctor watched, or of a model; or the name "
        "of a model.",
        "RUN_OR_MODEL",
        positional=True,
    )
    data: str | None = setting(
        None, "Text, pairs or images to embed.", "FILE", shown="the run's own"
    )
    columns: Names = setting(
        [],
        "Columns of a table, as in training.",
        used=Used(lambda data: data, "needs `--data FILE`"),
    )
    objective: str | None = setting(
        None,
        "Objective whose components are measured on the data. Its settings are --objective.SETTING "
        "VALUE.",
    )
    plugin: list[Path] = plugin()
    as_json: bool = as_json()


def diagnose(settings: DiagnoseSettings) -> int:
    """Examine, diagnose, print."""
    if not Path(settings.target).exists():  # else a run, a model, or what another trainer wrote
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
    "Name why a run collapsed, stalled or overfitted, and what to change.",
    EPILOG,
)
