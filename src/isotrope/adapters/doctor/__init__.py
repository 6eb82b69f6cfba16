"""The doctor as a callback, ``isotrope.Doctor``: one object for any loss and any trainer.

- :mod:`~isotrope.adapters.doctor.doctor`: the callback itself;
- :mod:`~isotrope.adapters.doctor.hugging_face` and :mod:`~isotrope.adapters.doctor.lightning`: the
  handlers of the events of a transformers trainer, and of Lightning;
- :mod:`~isotrope.adapters.doctor.hosts`: the names of settings in trainers and loss libraries;
- :mod:`~isotrope.adapters.doctor.messages`: the lines that it prints.
"""

from isotrope.adapters.doctor.doctor import Doctor

__all__ = ["Doctor"]
