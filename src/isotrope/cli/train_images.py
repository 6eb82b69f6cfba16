"""``isotrope train-images``: train an image encoder without labels."""

from isotrope.cli.training import Training
from isotrope.training.images.settings import ImageSettings

EPILOG = """\
examples:
  isotrope train-images photos/ --output runs/photos
  isotrope train-images cifar10/ --objective miov3 --cut 3 --epochs 20 --output runs/mio
  isotrope train-images cifar10/ --method byol --method.decay 0.99 --cut 9 --output runs/byol
  isotrope train-images pictures.npz --encoder resnet9 --width 16 --precision bf16 --output runs/n
  isotrope train-images photos/ --method mocov3 --encoder vit-small --output runs/vit
  isotrope train-images --config runs/mio/config.yaml --output runs/again
  isotrope evaluate runs/mio --knn --linear

docs/methods lists the default settings and the options (--method.NAME) of each method. The images
need no labels. If there are labels and a test part, nearest-neighbour accuracy is measured during
training (k = 200, t = 0.1, features without the heads), and a linear probe at the end. Files that
cannot be read as images are skipped and counted.

exit codes: 0 done, 2 bad input, 130 Ctrl-C and 75 stopped by a scheduler, or because one of several
processes died (they leave a checkpoint: run the same command with --resume), 1 a bug.
"""


def train_images(settings: ImageSettings, *, resume: bool) -> int:
    """Train, print where the model is."""
    from isotrope.training.early_checks import check_early

    check_early(settings, resume=resume)
    from isotrope.training.images.train import summary, train

    outcome = train(settings, resume=resume, lines=True)
    if outcome.first:
        print(summary(outcome))
    return outcome.exit_code


run = Training(
    "train-images",
    ImageSettings,
    train_images,
    "Train an image encoder on unlabelled images.",
    EPILOG,
    usage="isotrope train-images DATA --output DIR [settings]",
)
