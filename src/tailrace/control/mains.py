"""Classes of the user's script or notebook, in the processes of workers.

What `__main__` of a program defines travels with its topology, by value. Objects of its classes are
pickled by name all the same, from worker to worker and into checkpoints: so that the name leads to
the class it has to be in `__main__` of each worker, too.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

_TRACKERS = ("pyspark.cloudpickle.cloudpickle", "cloudpickle.cloudpickle")
"""Modules that make classes of what travelled by value, and know those that they made."""
_adopted: dict[str, type] = {}


def load_job(pickled: bytes) -> Any:
    """Unpickle, and let the classes that came with it be found by name.

    A name that is taken here by something else stays as it is.
    """
    before = set(_made())
    job = pickle.loads(pickled)
    main = sys.modules["__main__"]
    for number, made in _made().items():
        name = made.__qualname__
        if number in before or made.__module__ != "__main__" or not name.isidentifier():
            continue
        if getattr(main, name, None) is _adopted.get(name):
            setattr(main, name, made)
            _adopted[name] = made
    return job


def _made() -> dict[str, type]:
    """All classes that were made here of what travelled by value, in the order they were made."""
    modules = (sys.modules.get(name) for name in _TRACKERS)
    found = (getattr(module, "_DYNAMIC_CLASS_TRACKER_BY_ID", {}) for module in modules)
    return {number: made for tracker in found for number, made in tracker.items()}
