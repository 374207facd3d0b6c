"""Markers: control messages that flow in-band, in order with the records of their sender.

Every instance dispatches on a marker's type; one of a type that it does not know is an error, and
never taken for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

IDLE = 2**63 - 1
"""The watermark of a sender that has nothing to say about time for now."""

BEGINNING = -(2**63)
"""The watermark of a sender that has said nothing about time yet."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What all markers are; see its subclasses."""


@dataclass(frozen=True, slots=True)
class Watermark(Marker):
    """How far event time is: no record with an earlier one comes any more from this sender.

    `emitted_ns` is when the source emitted the record that moved time on: the latency of what
    happens then, such as the result of a window, counts from there. Where watermarks wait behind
    each other only the newest is kept, and a result of an earlier one counts from its record.
    """

    time_ns: int
    emitted_ns: int


@dataclass(frozen=True, slots=True)
class End(Marker):
    """No more comes from this sender. With the time at which the source ended, if it is known."""

    emitted_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint(Marker):
    """What comes before it belongs to the epoch, what comes behind it to the next.

    With the number of a change, what comes behind it was sent under another deployment, too.
    Behind the job's last epoch nothing comes: whoever hears of that reads no more.
    """

    epoch: int
    change: int = 0
    last: bool = False


@dataclass(frozen=True, slots=True)
class Change(Marker):
    """What comes behind it was sent under another deployment; in a job without checkpoints."""

    change: int


def unknown(marker: Marker) -> TypeError:
    """The error for a marker that nobody here has a meaning for."""
    return TypeError(
        f"a marker of the unknown type {type(marker).__name__}: {marker!r}; do all workers run the"
        " same version of tailrace?"
    )


def add_marker(items: list[Any], marker: Marker) -> None:
    """Put a marker behind the items. A watermark takes the place of those it comes right after.

    So markers alone never pile up. Idleness replaces only itself: the watermark before it counts.
    """
    if isinstance(marker, Watermark):
        while items and isinstance(last := items[-1], Watermark):
            if marker.time_ns == IDLE != last.time_ns:
                break
            items.pop()
    items.append(marker)
