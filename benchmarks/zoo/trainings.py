"""The trainings of the benchmark, their planted faults, and the data of its three parts.

A name in braces in a command is a placeholder that each part fills in.
"""

from dataclasses import dataclass

from isotrope.diagnostics.findings import HEALTHY


@dataclass(frozen=True)
class Training:
    """One training, healthy or broken in one way.

    Attributes:
        name: of its folder.
        cause: the right verdict, ``healthy`` for a training without a fault.
        change: required beginning of the first finding's change.
        command: of `isotrope`, without --output and --seed; words in braces are the part's.
    """

    name: str
    cause: str
    change: str
    command: str


@dataclass(frozen=True)
class Part:
    """One part of the benchmark: its data, encoders and settings.

    Attributes:
        name: ``tuning``, ``first`` or ``judged``.
        seeds: of its trainings.
        words: values of the placeholders of the commands; ``{data}``, ``{small}`` and the
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
    Training("constant", "collapsed", "--encoder", f"{PAIRS} --encoder {{constant}}"),
    Training(
        "line",
        "dimensional-collapse",
        "--objective.cov_coeff",
        f"{IMAGES} {{longer}} --method vicreg --method.dimension 128 --objective.cov_coeff 0",
    ),
    Training(
        "temperature-3",
        "negatives-not-hard",
        "--objective.temperature",
        f"{SMALL} --objective.temperature 3",
    ),
    Training(
        "margin-2",
        "never-dissipating",
        "--objective.margin",
        f"{SMALL} --objective mpt --objective.margin 2",
    ),
    Training(
        "barlow-twins",
        "never-dissipating",
        "--objective modifiedbarlowtwins",
        f"{TEXTS} --objective barlowtwins",
    ),
    Training(
        "learning-rate",
        "diverging",
        "--learning-rate",
        "train {data}/pairs.tsv --encoder scratch {scratch} --learning-rate 1e-2",
    ),
    Training(
        "weight-decay",
        "collapsed",
        "--weight-decay",
        f"{IMAGES} {{longer}} --learning-rate 0.2 --weight-decay 5e-2",
    ),
    Training("dropout-0", "dead-views", "--dropout", f"{TEXTS} --dropout 0"),
    Training(
        "copies",
        "false-negatives",
        "train on a file without these copies",  # no flag does it
        "train {data}/copies.txt --encoder {small} {text}",
    ),
    Training("long", "norms-too-large", "--head mlp", f"{PAIRS} --encoder {{long}} --head none"),
    Training("no-weight-decay", "norms-too-large", "--weight-decay", f"{IMAGES} --weight-decay 0"),
    Training(
        "mixed-pairs",
        "unrelated-positives",
        "--columns",
        "train {data}/mixed.tsv --encoder {small} {text}",
    ),
)
"""The twelve trainings with a planted fault."""

SOUND = (
    Training(
        "scratch",
        HEALTHY,
        "",
        f"train {{data}}/pairs.tsv --encoder scratch {{scratch}} --learning-rate 1e-3 {DEV}",
    ),
    Training("infonce", HEALTHY, "", f"{LEARNING} {DEV}"),
    Training("met", HEALTHY, "", f"{LEARNING} --objective met {DEV}"),
    Training("modified", HEALTHY, "", f"{LEARNING} --objective modifiedbarlowtwins {DEV}"),
    Training("simclr", HEALTHY, "", IMAGES),
    Training("vicreg", HEALTHY, "", f"{IMAGES} --method vicreg --method.dimension 128"),
    Training("byol", HEALTHY, "", f"{IMAGES} --method byol"),
)
"""Seven healthy trainings, whose dev scores do not fall."""

TRAININGS = (*SOUND, *BROKEN)
"""All trainings; the healthy ones first, because the tuning part's ``{small}`` is one of them."""

PARTS = (
    Part(
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
    Part(
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
    Part(
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
