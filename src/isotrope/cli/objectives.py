"""``isotrope objectives``: list the objectives, or show one."""

import inspect
import textwrap
from pathlib import Path

from isotrope.cli.command import Command, plugin
from isotrope.core.settings import Settings, Used, setting
from isotrope.core.table import table

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
  weight       hardest: the most similar negative pushes; all: all push; signed: some negatives pull
  ratio        a number; dynamic: the ratio depends on the angles; matrix: a ratio for each
               coordinate; only pull: no negative pushes
A component is written as its name and its values, such as margin:0.3:dot. Values at the end may be
left out: margin:0.3.
"""


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


_WIDTH = 100

_BY_DISSIPATION = {
    "1 to 0": "An anchor learns less as its positive comes closer (the usual choice is infonce)",
    "1 or 0": "An anchor stops learning when it reaches a margin",
    "1": "No anchor ever stops learning",
    "-": "Losses of training methods; their gradients have no dissipation, weight and ratio",
}
"""Titles of the groups of objectives."""


def _list() -> int:
    from isotrope.paradigm import registry
    from isotrope.paradigm.portrait import rows

    seen = rows(registry.names())
    for kind, words in _BY_DISSIPATION.items():
        names_of_kind = [name for name in registry.names() if seen[name][0] == kind]
        docs = [inspect.getdoc(registry.find(name)) or "" for name in names_of_kind]
        firsts = [" ".join(doc.split("\n\n")[0].split()) for doc in docs]
        lines = [*zip(names_of_kind, firsts, strict=True)]
        print(f"{words}:\n")
        # without the heading of the table; the indent takes two characters
        shown = table([" ", " "], lines, width=_WIDTH - 2).splitlines()[2:]
        print("\n".join(f"  {line}" for line in shown) + "\n")
    print("`isotrope objectives NAME` shows one: formula, gradient, settings, presets, source.")
    print("\nComponents; they replace those of any objective, or form a new one (paradigm):\n")
    for flag, values, meaning in _parts():
        print(f"  {flag}{values and f'  ({values})'}")
        print(textwrap.fill(meaning, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6))
    return 0


def _components() -> int:
    from isotrope.paradigm import registry
    from isotrope.paradigm.portrait import rows

    header = ["objective", "dissipation", "weight", "ratio"]
    print(table(header, [[name, *cells[:3]] for name, cells in rows(registry.names()).items()]))
    return 0


def _card(name: str) -> int:
    from isotrope.core.hyper import hypers
    from isotrope.paradigm import registry
    from isotrope.paradigm.portrait import shown, summary

    cls = registry.find(name)
    print(f"{cls.name} ({cls.__name__})\n\n{inspect.getdoc(cls)}\n")
    print(f"{cls.paper.title}\n{cls.paper.reference}; {cls.paper.equation}\n")
    seen = summary(cls())
    print("components: " + ", ".join(f"{part} {what}" for part, what in seen.items()) + "\n")
    settings = [
        [f"--objective.{field}", hyper.symbol, shown(getattr(cls, field)), hyper.bounds, hyper.help]
        for field, hyper in hypers(cls).items()
    ]
    if settings:
        print(table(["flag", "symbol", "default", "allowed", "meaning"], settings))
    if cls.presets:
        presets = [
            [
                f"--objective.preset {preset}",
                ", ".join(f"{field} {shown(value)}" for field, value in tuned.values.items()),
                f"{tuned.learning_rate:g}",
                str(tuned.batch_size),
                tuned.source,
            ]
            for preset, tuned in cls.presets.items()
        ]
        print("\n" + table(["preset", "values", "learning rate", "batch size", "source"], presets))
        print("\nA preset sets only its values. They were tuned at the learning rate and the batch")
        print("size in the table: set --learning-rate and --batch-size to the numbers of the row.")
    return 0


def _parts() -> list[list[str]]:
    """Return the flag, the settings and the meaning of each dissipation, weight and ratio."""
    from isotrope.core.hyper import hypers
    from isotrope.paradigm.parts import Dissipation, Ratio, Weight
    from isotrope.paradigm.portrait import shown
    from isotrope.paradigm.registry import FORMS

    rows = []
    for kind in (Dissipation, Weight, Ratio):
        for name, cls in sorted(kind.by_name.items()):
            fields = hypers(cls)
            value = "".join(f":{shown(getattr(cls, field))}" for field in fields)
            meaning = (inspect.getdoc(cls) or "").splitlines()[0]
            flag = f"--objective.{kind.__name__.lower()} {name}{value}"
            rows.append([flag, ":".join(fields), meaning])
    for name, hyper in FORMS.items():
        choices = "|".join(str(c).lower() for c in hyper.choices) or "NAME"
        rows.append([f"--objective.{name} {choices}", "", hyper.help])
    return rows


run = Command(
    "objectives",
    ObjectivesSettings,
    objectives,
    "List the objectives with their components, or show one objective.",
    EPILOG,
)
