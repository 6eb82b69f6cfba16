"""The animals of the zoo: what is trained, what is wrong with it, and with what it is trained.

A name in braces stands for what a half of the zoo has in its place.
"""

from dataclasses import dataclass

from isotrope.diagnostics.findings import HEALTHY

__all__ = ["ANIMALS", "BROKEN", "HALVES", "SOUND", "Animal", "Half"]


@dataclass(frozen=True)
class Animal:
    """One training, healthy or broken in one way.

    Attributes:
        name: of its folder.
        cause: the verdict that is right, ``healthy`` of a healthy one.
        change: what the first finding's change has to begin with.
        command: of `isotrope`, without --output and --seed; words in braces are the half's.
    """

    name: str
    cause: str
    change: str
    command: str


@dataclass(frozen=True)
class Half:
    """One part of the zoo.

    Attributes:
        name: ``tuning``, ``first`` or ``judged``.
        seeds: of its trainings.
        words: what the words in braces of the commands stand for; ``{data}``, ``{small}`` and the
            broken models' names are folders below the output.
    """

    name: str
    seeds: tuple[int, ...]
    words: dict[str, str]


PAIRS = "train {data}/pairs.tsv {text}"
SMALL = f"{PAIRS} --encoder {{small}}"
LEARNING = "train {data}/pairs.tsv --encoder {unfinished} {learning}"
TEXTS = "train {data}/texts.txt --encoder {small} {text}"
IMAGES = "train-images {images}"
DEV = "--dev {dev} --eval-every 1000"

BROKEN = (
    Animal("constant", "collapsed", "--encoder", f"{PAIRS} --encoder {{constant}}"),
    Animal(
        "line",
        "dimensional-collapse",
        "--objective.cov_coeff",
        f"{IMAGES} {{longer}} --method vicreg --method.dimension 128 --objective.cov_coeff 0",
    ),
    Animal(
        "temperature-3",
        "negatives-not-hard",
        "--objective.temperature",
        f"{SMALL} --objective.temperature 3",
    ),
    Animal(
        "margin-2",
        "never-dissipating",
        "--objective.margin",
        f"{SMALL} --objective mpt --objective.margin 2",
    ),
    Animal(
        "barlow-twins",
        "never-dissipating",
        "--objective modifiedbarlowtwins",
        f"{TEXTS} --objective barlowtwins",
    ),
    Animal(
        "learning-rate",
        "diverging",
        "--learning-rate",
        "train {data}/pairs.tsv --encoder scratch {scratch} --learning-rate 1e-2",
    ),
    Animal(
        "weight-decay",
        "collapsed",
        "--weight-decay",
        f"{IMAGES} {{longer}} --learning-rate 0.2 --weight-decay 5e-2",
    ),
    Animal("dropout-0", "dead-views", "--dropout", f"{TEXTS} --dropout 0"),
    Animal(
        "copies",
        "false-negatives",
        "--files",
        "train {data}/copies.txt --encoder {small} {text}",
    ),
    Animal("long", "norms-too-large", "--head mlp", f"{PAIRS} --encoder {{long}} --head none"),
    Animal("no-weight-decay", "norms-too-large", "--weight-decay", f"{IMAGES} --weight-decay 0"),
    Animal(
        "mixed-pairs",
        "unrelated-positives",
        "--columns",
        "train {data}/mixed.tsv --encoder {small} {text}",
    ),
)
"""The twelve causes."""

SOUND = (
    Animal(
        "scratch",
        HEALTHY,
        "",
        f"train {{data}}/pairs.tsv --encoder scratch {{scratch}} --learning-rate 1e-3 {DEV}",
    ),
    Animal("infonce", HEALTHY, "", f"{LEARNING} {DEV}"),
    Animal("met", HEALTHY, "", f"{LEARNING} --objective met {DEV}"),
    Animal("modified", HEALTHY, "", f"{LEARNING} --objective modifiedbarlowtwins {DEV}"),
    Animal("simclr", HEALTHY, "", IMAGES),
    Animal("vicreg", HEALTHY, "", f"{IMAGES} --method vicreg --method.dimension 128"),
    Animal("byol", HEALTHY, "", f"{IMAGES} --method byol"),
)
"""Seven healthy ones, whose dev scores do not fall."""

ANIMALS = (*SOUND, *BROKEN)
"""All of them; the healthy ones first, because the tuning half's ``{small}`` is one of them."""

HALVES = (
    Half(
        "tuning",
        (0,),
        {
            "text": "--batch-size 64 --max-length 24 --max-steps 40 --learning-rate 3e-4 "
            "--log-every 4",
            "scratch": "--batch-size 64 --max-length 24 --max-steps 80 --log-every 4",
            "dev": "{data}/dev.tsv",
            "images": "digits --encoder resnet9 --width 8 --batch-size 64 --augment p3 "
            "--max-steps 80 --log-every 4 --no-linear --knn-every 0",
            "longer": "--max-steps 200 --log-every 10",
            "small": "{runs}/scratch",
            "unfinished": "{runs}/scratch",
            "learning": "--batch-size 64 --max-length 24 --max-steps 40 --learning-rate 3e-4 "
            "--log-every 4",
        },
    ),
    Half(
        "first",
        (2,),
        {
            "text": "--batch-size 24 --max-length 16 --max-steps 10 --learning-rate 3e-5 "
            "--log-every 1",
            "scratch": "--batch-size 64 --max-length 24 --max-steps 80 --log-every 4",
            "dev": "{data}/sts.tsv",
            "images": "{shared}/cifar10 --limit 3000 --knn-images 1000 --image-size 12 "
            "--encoder resnet18 --width 8 --batch-size 64 --augment p3 --max-steps 80 "
            "--log-every 4 --no-linear --knn-every 0",
            "longer": "--max-steps 200 --log-every 10",
            "small": "all-MiniLM-L6-v2",
            # all-MiniLM-L6-v2 has nothing to learn from these pairs: its anchors are done at once
            "unfinished": "{shared}/standin-mlm",
            "learning": "--batch-size 24 --max-length 16 --max-steps 20 --learning-rate 5e-5 "
            "--log-every 2",
        },
    ),
    Half(
        "judged",
        (3,),
        {
            "text": "--batch-size 16 --max-length 12 --max-steps 8 --learning-rate 3e-5 "
            "--log-every 1",
            "scratch": "--batch-size 48 --max-length 16 --max-steps 60 --log-every 3",
            "dev": "{data}/sts.tsv",
            "images": "{shared}/cifar10 --limit 2000 --knn-images 1000 --image-size 8 "
            "--encoder resnet9 --width 12 --batch-size 48 --augment p3 --max-steps 80 "
            "--log-every 4 --no-linear --knn-every 0",
            "longer": "--max-steps 200 --log-every 10",
            "small": "{shared}/standin-mlm",
            "unfinished": "{shared}/standin-mlm",
            "learning": "--batch-size 24 --max-length 16 --max-steps 16 --learning-rate 5e-5 "
            "--log-every 2",
        },
    ),
)
