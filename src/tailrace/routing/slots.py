"""Which instance owns a key: by its slot, a share of the hashes, or by a table of single keys.

There are always as many slots, whatever the parallelism, so that an owner can change for some of
them while the others stay. Keys that are routed apart from their slot stand in the table.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal
from zlib import crc32

from tailrace.routing.hashing import stable_hash

SLOTS = 1 << 14


def slot_of(key: Hashable) -> int:
    """The slot of a key, the same everywhere. Raises TypeError for a key without a stable hash."""
    return stable_hash(key) % SLOTS


@dataclass(frozen=True)
class Routes:
    """The owner of every key, as an index among the receivers of a stream.

    >>> even = Routes.even(4)
    >>> even.owner("a") == even.owners[slot_of("a")]
    True
    >>> Routes(even.owners, {"a": 3}).owner("a")
    3
    """

    owners: array[int] = field(repr=False)
    """By slot."""
    keys: Mapping[Hashable, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.owners) != SLOTS:
            raise ValueError(f"owners of {len(self.owners)} slots; there are {SLOTS}")

    @classmethod
    def even(cls, parallelism: int) -> Routes:
        """The same number of slots for each, as far as that goes; no table."""
        return _even(parallelism)

    @cached_property
    def fingerprint(self) -> int:
        """Another number for other owners; 0: each has as many slots, in turn, and no table."""
        parallelism = max(self.owners) + 1
        if not self.keys and self.owners == Routes.even(parallelism).owners:
            return 0
        keys = sorted(f"{key!r} {owner}" for key, owner in self.keys.items())
        owners = ",".join(map(str, self.owners))
        return crc32("\n".join([owners, *keys]).encode("utf-8", "surrogateescape")) or 1

    def spread(self, parallelism: int) -> Routes:
        """The same number of slots for each of so many, with as few as can be changing owners.

        Keys of the table that belonged to owners that are no more go by their slots.

        >>> three = Routes.even(2).spread(3)
        >>> [three.owners.count(index) for index in range(3)]
        [5462, 5461, 5461]
        >>> moved = sum(map(int.__ne__, Routes.even(2).owners, three.owners))
        >>> moved == three.owners.count(2)
        True
        """
        share, rest = divmod(SLOTS, parallelism)
        room = [share + (index < rest) for index in range(parallelism)]
        homeless = []
        owners = array(_code(parallelism), self.owners)
        for slot, owner in enumerate(owners):
            if owner < parallelism and room[owner]:
                room[owner] -= 1
            else:
                homeless.append(slot)
        takers = iter([index for index, many in enumerate(room) for _ in range(many)])
        for slot in homeless:
            owners[slot] = next(takers)
        keys = {key: owner for key, owner in self.keys.items() if owner < parallelism}
        return Routes(owners, keys)

    def owner(self, key: Hashable) -> int:
        """The owner of a key."""
        found = self.keys.get(key)
        return self.owners[slot_of(key)] if found is None else found


@lru_cache(maxsize=64)
def _even(parallelism: int) -> Routes:
    return Routes(array(_code(parallelism), [i % parallelism for i in range(SLOTS)]))


def _code(parallelism: int) -> Literal["H", "L"]:
    return "H" if parallelism <= 1 << 16 else "L"
