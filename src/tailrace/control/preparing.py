"""Large tables of keys on their way to workers: in pieces, each unpacked within a slice.

To unpack ten thousand keys at once would hold a worker up for two or three milliseconds.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from itertools import islice

from tailrace.control.changing import Prepare
from tailrace.routing.slots import Routes
from tailrace.runtime.deployment import Layout

_PIECE = 256
"""Keys. Some 50 us to unpack."""
_SLICE_NS = 100_000


def in_pieces(told: Prepare) -> Prepare:
    """A change as it is sent: the keys of large tables apart, in pieces."""
    layout = told.layout
    large = {stream: one for stream, one in layout.routes.items() if len(one.keys) > _PIECE}
    if not large:
        return told
    routes = {**layout.routes, **{stream: Routes(one.owners) for stream, one in large.items()}}
    tables = {stream: _cut(one.keys) for stream, one in large.items()}
    return replace(told, layout=replace(layout, routes=routes), tables=tables)


def _cut(keys: Mapping[Hashable, int]) -> tuple[bytes, ...]:
    items = iter(keys.items())
    pieces = iter(lambda: dict(islice(items, _PIECE)), {})
    return tuple(pickle.dumps(piece, 5) for piece in pieces)


class Preparing:
    """A change that a worker has heard of, until it has all of its tables."""

    def __init__(self, told: Prepare) -> None:
        self.told = told
        self._left = [(stream, piece) for stream, some in told.tables.items() for piece in some]
        self._keys: dict[int, dict[Hashable, int]] = {stream: {} for stream in told.tables}

    def work(self, clock_ns: Callable[[], int]) -> Layout | None:
        """Unpack for about a slice; the layout, when that was all."""
        until_ns = clock_ns() + _SLICE_NS
        while self._left:
            stream, piece = self._left.pop()
            self._keys[stream].update(pickle.loads(piece))
            if clock_ns() >= until_ns and self._left:
                return None
        layout = self.told.layout
        whole = {
            stream: Routes(layout.routes[stream].owners, keys)
            for stream, keys in self._keys.items()
        }
        return replace(layout, routes={**layout.routes, **whole})
