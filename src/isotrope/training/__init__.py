"""Training on text and images: settings, run folders, and trainers of Hugging Face.

``settings`` declares the settings of a training. ``run`` creates the folder, starts the processes
and returns the outcome of a run. ``loop`` performs the steps. ``trainers`` extends the trainers of
sentence-transformers and transformers. ``run_callback`` does the work between the steps: it calls
``run_log``, which writes metrics.csv, and ``dev_scorer``, which measures the dev score.
``checkpoints`` finds complete checkpoints, ``progress`` prints the progress, and ``nan_guard``
stops a run at a number that is not finite.

For text, ``fit_text`` defines ``isotrope.fit``, ``text`` performs the whole run, ``text_module``
builds the module to train, and ``card`` writes the model card. For images, the package ``images``
has the training methods.

If a run has several processes, ``launch`` starts and watches them. Each process runs ``worker``.
"""

from typing import TYPE_CHECKING

from isotrope.core import public

if TYPE_CHECKING:
    from isotrope.training.checkpoints import read_checkpoint as read_checkpoint
    from isotrope.training.fit_text import fit as fit
    from isotrope.training.images.method import ImageMethod as ImageMethod
    from isotrope.training.images.settings import ImageSettings as ImageSettings
    from isotrope.training.images.settings import find_method as find_method
    from isotrope.training.images.settings import options_of as options_of
    from isotrope.training.images.train import fit_images as fit_images
    from isotrope.training.images.train import prepare as prepare
    from isotrope.training.launch import each as each
    from isotrope.training.optimisers import build_optimizer as build_optimizer
    from isotrope.training.optimisers import set_rates as set_rates
    from isotrope.training.optimisers import step_seed as step_seed
    from isotrope.training.settings import TrainSettings as TrainSettings
    from isotrope.training.text_encoder import encoder_of as encoder_of

public(__name__)
