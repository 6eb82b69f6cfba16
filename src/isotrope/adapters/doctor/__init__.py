"""The callback ``isotrope.Doctor``: one object for any loss and any trainer.

``doctor`` has the callback. ``hugging_face`` and ``lightning`` handle the events of their trainers.
``messages`` has the lines that the Doctor prints, and the names that trainers and loss libraries
give to their settings.
"""

from isotrope.adapters.doctor.doctor import Doctor

__all__ = ["Doctor"]
