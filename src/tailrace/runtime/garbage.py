"""Python's collector of cyclic garbage, set for streams.

Records of a batch are many objects that live for a moment. At Python's default the collector
comes in the middle of every batch, finds them all alive, and moves them on to be looked through
again: about an eighth of the time of a topology with much state. Here it comes when a batch has
long been over, and passes over all that was there before the stream began.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG_OBJECTS = 5_000
"""More than a batch leaves alive at a time, and few enough for a pause of a fraction of a ms."""


@contextmanager
def collected_rarely() -> Iterator[None]:
    """As above, within; afterwards as it was before."""
    young, *older = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(young, _YOUNG_OBJECTS), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
        gc.unfreeze()
