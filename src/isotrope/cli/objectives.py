"""``isotrope objectives``: list the objectives, or show one."""

import inspect
import textwrap
from pathlib import Path

from isotrope.cli.command import Command, plugin
from isotrope.core.settings import Settings, Used, setting
from isotrope.core.table import definition_list, table

EPILOG = """\
examples:
  isotrope objectives                        all objectives, and all components for --objective.*
  isotrope objectives --components           dissipation, weight and ratio of each objective
  isotrope objectives infonce                formula, gradient, settings and presets of one
  isotrope objectives --plugin my_loss.py    all objectives, including those in your file

An anchor's gradient is dissipation * (sum over negatives j of weight_j * (negative_j - ratio_j *
positive)). The columns of --components:
  dissipation  1: the gradient never vanishes; 1 or 0: the gradient is 0 beyond a margin; 1 to 0:
               the gradient fades as the positive comes nearer than the negatives
  weight       hardest: the most similar negative pushes; all: all push; signed: some negatives
               pull; none: no negative pushes
  ratio        a number; dynamic: the ratio depends on the angles; matrix: a ratio for each
               coordinate; only pull: no negative pushes
A dash means that the loss defines no components.
A component is written as its name and its values, such as margin:0.3:dot. Values at the end may be
left out: margin:0.3.
"""

_WIDTH = 100  # characters of a line

_GROUPS = {
    "1 to 0": "An anchor learns less as its positive comes closer (the usual choice is infonce)",
    "1 or 0": "An anchor stops learning when it reaches a margin",
    "1": "No anchor ever stops learning",
    "-": "Losses that define no components (dissipation, weight and ratio)",
}
"""Titles of the groups in the list of objectives, by dissipation as in the table of components."""


class ObjectivesSettings(Settings):
    """Settings of ``isotrope objectives``."""

    name: str | None = setting(None, "Objective to show.", "NAME", positional=True)
    plugin: list[Path] = plugin()
    components: bool = setting(
        False,
        "List dissipation, weight and ratio, the components of each objective's gradient.",
        used=Used(lambda name: name is None, "only without NAME"),
    )


def objectives(settings: ObjectivesSettings) -> int:
    """Print all objectives, or a table of components, or the details of one objective."""
    from isotrope.paradigm import registry

    registry.load_plugins(settings.plugin)
    if settings.name:
        return _card(settings.name)
    return _components() if settings.components else _list()


def _list() -> int:
    from isotrope.paradigm import registry

    summaries = _summaries()
    indent = "  "
    for group, title in _GROUPS.items():
        sentences = {}
        for name in (name for name, of in summaries.items() if of["dissipation"] == group):
            paragraph = (inspect.getdoc(registry.find(name)) or "").partition("\n\n")[0]
            sentences[name] = " ".join(paragraph.split())
        lines = textwrap.indent(definition_list(sentences, _WIDTH - len(indent)), indent)
        print(f"{title}:\n\n{lines}\n")
    print("`isotrope objectives NAME` shows one: formula, gradient, settings, presets, source.")
    print("\nComponents; they replace those of any objective, or form a new one (paradigm):\n")
    _print_choices()
    return 0


def _print_choices() -> None:
    """Print each dissipation, weight, ratio and form of the gradient: its flag and its meaning."""
    from isotrope.core.hyper import hypers
    from isotrope.paradigm.declared import FORMS
    from isotrope.paradigm.parts import Dissipation, Ratio, Weight
    from isotrope.paradigm.portrait import shown

    def explain(flag: str, meaning: str) -> None:
        margin = " " * 6
        print(f"  --objective.{flag}")
        print(textwrap.fill(meaning, _WIDTH, initial_indent=margin, subsequent_indent=margin))

    for kind in (Dissipation, Weight, Ratio):
        for name, cls in sorted(kind.by_name.items()):
            fields = hypers(cls)
            values = "".join(f":{shown(getattr(cls, field))}" for field in fields)
            settings = f"  ({':'.join(fields)})" if fields else ""
            meaning = (inspect.getdoc(cls) or "").splitlines()[0]
            explain(f"{kind.__name__.lower()} {name}{values}{settings}", meaning)
    for name, hyper in FORMS.items():
        choices = "|".join(str(choice).lower() for choice in hyper.choices) or "NAME"
        explain(f"{name} {choices}", hyper.help)


def _components() -> int:
    rows = [[name, *summary.values()] for name, summary in _summaries().items()]
    print(table(["objective", "dissipation", "weight", "ratio"], rows))
    return 0


def _summaries() -> dict[str, dict[str, str]]:
    """Return dissipation, weight and ratio of each objective in a few words."""
    from isotrope.paradigm import registry
    from isotrope.paradigm.portrait import summary

    return {name: summary(registry.find(name)()) for name in registry.names()}


def _card(name: str) -> int:
    from isotrope.core.hyper import hypers
    from isotrope.paradigm import registry
    from isotrope.paradigm.portrait import shown, summary

    cls = registry.find(name)
    print(f"{cls.name} ({cls.__name__})\n\n{inspect.getdoc(cls)}\n")
    print(f"{cls.paper.title}\n{cls.paper.reference}; {cls.paper.equation}\n")
    components = [f"{component} {words}" for component, words in summary(cls()).items()]
    print(f"components: {', '.join(components)}\n")
    settings = [
        [f"--objective.{field}", hyper.symbol, shown(getattr(cls, field)), hyper.bounds, hyper.help]
        for field, hyper in hypers(cls).items()
    ]
    if settings:
        print(table(["flag", "symbol", "default", "allowed", "meaning"], settings))
    presets = []
    for preset, tuned in cls.presets.items():
        values = ", ".join(f"{field} {shown(value)}" for field, value in tuned.values.items())
        tuned_at = [f"{tuned.learning_rate:g}", str(tuned.batch_size), tuned.source]
        presets.append([f"--objective.preset {preset}", values, *tuned_at])
    if presets:
        print("\n" + table(["preset", "values", "learning rate", "batch size", "source"], presets))
        print("\nA preset sets only its values. They were tuned at the learning rate and the batch")
        print("size in the table: set --learning-rate and --batch-size to the numbers of the row.")
    return 0


run = Command(
    "objectives",
    ObjectivesSettings,
    objectives,
    "List the objectives with their components, or show one objective.",
    EPILOG,
)
