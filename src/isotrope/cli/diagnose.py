"""``isotrope diagnose``: report what is wrong with a run or a model, and what to change."""

from pathlib import Path

from isotrope.cli.command import Command, OfObjective, as_json, in_ascii, plugin
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
writes the diagnosis to RUN/diagnosis.json, which `isotrope report` shows. If the run was made on
this machine, its data are embedded too; otherwise, give the data as --data FILE. For the output
folder of another trainer, the command examines what isotrope.Doctor() wrote there.

For a model, the command examines the embeddings of --data. Without --data, it embeds the docstrings
of Python's standard library. For texts, it also prints statistics of Li et al. (2024): angles,
cosines, the hardest negative's share of the push, and ratios of pull to push. It also prints MRR@10
of the data before and after whitening of the embeddings. Whitening usually
  more than doubles MRR@10         if the model was never trained on pairs
  does not raise MRR@10            if the last training was on pairs
  raises it, but does not double   if the model was trained on pairs, then on something else

The first finding is the likely cause; other findings that follow from this cause are left out. Each
finding shows the measured numbers, the thresholds that decide it, the source of each threshold, and
one setting to change. docs/diagnosis.md lists all thresholds.

exit codes: 0 done, whatever it found; 1 a bug; 2 bad input.
"""


class DiagnoseSettings(OfObjective):
    """Settings of ``isotrope diagnose``."""

    target: str = setting(
        ...,
        "Run folder; folder or name of a model; or output folder of a trainer that had the "
        "callback isotrope.Doctor.",
        "RUN_OR_MODEL",
        positional=True,
    )
    data: str | None = setting(
        None, "Text, pairs or images to embed.", "FILE", shown="the data of the run"
    )
    columns: Names = setting(
        [],
        "If --data is a table: names or numbers of the columns to read.",
        used=Used(lambda data: data, "needs `--data FILE`"),
    )
    objective: str | None = setting(
        None,
        "For a model, the objective whose gradient is measured on the data; for a run, the "
        "objective to judge the log by. Set its settings with --objective.SETTING VALUE.",
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
    print(in_ascii(diagnosis.to_json()) if settings.as_json else diagnosis)
    return 0


run = Command(
    "diagnose",
    DiagnoseSettings,
    diagnose,
    "Find out why a run collapsed, stalled or overfitted, and what to change.",
    EPILOG,
)
