"""The callback ``isotrope.Doctor``: one object for any loss and any trainer.

``doctor`` is the callback itself. ``hugging_face`` and ``lightning`` handle the events of their
trainers. ``hosts`` has the names of settings in trainers and loss libraries; ``messages`` has the
lines that the Doctor prints.
"""

from isotrope.adapters.doctor.doctor import Doctor

__all__ = ["Doctor"]
