"""Python's collector of cyclic garbage, set for streams.

Records of a batch are many objects that live for a moment. At Python's default the collector
comes in the middle of every batch, finds them all alive, and moves them on to be looked through
again: about an eighth of the time of a topology with much state. Here it comes when a batch has
long been over, and passes over all that was there before the stream began.

It counts what is made less what is freed. Where states are replaced by new ones, both are equal,
and the new ones are never looked at; until something makes it come, which then stops everything for
as long as it takes to look at all of them: 50 ms for 100,000. So it is also made to come while
there is nothing else to do.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_YOUNG_OBJECTS = 5_000
"""More than a batch leaves alive at a time, and few enough for a pause of a fraction of a ms."""
TIDY_NS = 20_000_000
"""How often to `tidy`, at most."""
_LITTLE_BYTES = 16 << 20
"""So much more memory may be garbage before anybody looks."""
_bytes_without_garbage = 0
_OLD_ROUNDS = 500
"""What has lived long is looked through once in so many times ten of that, if it has grown much."""


def tidy() -> None:
    """Have the collector look at what is new, and by its own rules at what is older, now."""
    before = gc.get_threshold()
    gc.set_threshold(1, before[1], _OLD_ROUNDS)
    _made()
    gc.set_threshold(*before)


def _made() -> list[set[object]]:
    """Some objects that count: the collector comes when they are made, or at the next call."""
    return [set(), set()]  # lists come from a store, where nobody counts


def let_stay() -> None:
    """What has just been taken in stays: the collector looks at it now, and then never again.

    Where much comes and as much goes it would not come by itself, and when it does, look at
    hundreds of thousands of new states at once. What is garbage by now and has lived for long is
    not found any more, until the job ends.
    """
    gc.collect(1)
    gc.freeze()


def pass_over() -> None:
    """Between two jobs of a process: collect garbage if there may be much, and look at it no more.

    To look through all that has been imported takes 20 ms, which the next job would begin with. Who
    thaws it in the end of that job, and comes here again, finds garbage of this one, too.
    """
    global _bytes_without_garbage
    if _resident_bytes() > _bytes_without_garbage + _LITTLE_BYTES:
        gc.collect()
        _bytes_without_garbage = _resident_bytes()
    gc.freeze()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextmanager
def collected_rarely() -> Iterator[None]:
    """As above, within; afterwards with the thresholds from before, and nothing kept back."""
    young, *older = gc.get_threshold()
    gc.collect()  # what an earlier job in this process left must not be kept
    gc.freeze()
    gc.set_threshold(max(young, _YOUNG_OBJECTS), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
        gc.unfreeze()
