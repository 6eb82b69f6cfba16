"""``isotrope train-images``: train an image encoder without labels."""

from isotrope.cli.training import EXIT_CODES, Training, train
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
need no labels. If they have labels and a test part, the accuracy of nearest neighbours is measured
during training: the 200 training images with the nearest features (before the heads) vote, weighted
by exp(cosine/0.1). At the end, the accuracy of a linear probe is measured. Files that cannot be
read are skipped, and a message says how many.
"""


run = Training(
    "train-images",
    ImageSettings,
    train,
    "Train an image encoder on unlabelled images.",
    EPILOG + EXIT_CODES,
    usage="isotrope train-images DATA --output DIR [settings]",
)
