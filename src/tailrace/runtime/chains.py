"""How much of what was written of a step builds on each other, and what keeps that short.

What has changed is written in every epoch, and whoever restores it reads all that was written since
the state was written whole. So that happens now and then. A small state is written at once. With a
large one that would keep worker and disk busy for a second, in which everything else has to wait;
it is swept instead: every epoch writes a part of all keys beside those that have changed, and once
all have been written what is older is needed no more. So no epoch is like a stop.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from tailrace.runtime.hot import untracked

Kind = Literal["full", "delta", "part", "rest"]
"""All keys; those that have changed; of all others some, and the last that were left."""

SWEPT_BYTES = 2 << 20
"""What is this large or larger is swept. It takes some 100 ms to encode."""
PARTS = 20
"""Epochs of a sweep, at most."""
_LONGEST_CHAIN = 20
_LONGEST_SWEPT = 100
"""Two sweeps have 80, two in each epoch; more if workers are lost, and with them their sweeps."""
_LEAST_CHAIN_BYTES = 1 << 16


@dataclass(frozen=True)
class Chain:
    """What there is of a step. It outlives failures: each would let it grow anew otherwise."""

    sections: int = 0
    full_bytes: int = 0
    """Of what was written whole, at once or by a sweep."""
    delta_bytes: int = 0
    sweeping: Chain | None = None
    """What will be needed when the sweep in progress is over."""

    @property
    def is_swept(self) -> bool:
        """Whether the state is too large to be written at once."""
        return self.sections > 0 and self.full_bytes >= SWEPT_BYTES

    @property
    def full_is_due(self) -> bool:
        """Whether to write all of the state at once next, and so begin another one."""
        if self.is_swept:
            return self.sections >= _LONGEST_SWEPT
        return self.sections == 0 or (
            self.sections >= _LONGEST_CHAIN
            or self.delta_bytes > max(self.full_bytes, _LEAST_CHAIN_BYTES)
        )

    def longer(self, kind: Kind, size_bytes: int) -> Chain:
        """With one section more, or what is left with it of a new one."""
        if kind == "full":
            return Chain(1, size_bytes)
        sweeping = self.sweeping
        if kind == "delta":
            sweeping = sweeping and sweeping.longer(kind, size_bytes)
            grown_bytes = self.delta_bytes + size_bytes
            return Chain(self.sections + 1, self.full_bytes, grown_bytes, sweeping)
        begun = sweeping or NO_CHAIN
        swept_bytes = begun.full_bytes + size_bytes
        swept = replace(begun, sections=begun.sections + 1, full_bytes=swept_bytes)
        return (
            swept if kind == "rest" else replace(self, sections=self.sections + 1, sweeping=swept)
        )


NO_CHAIN = Chain()


class Sweep:
    """The keys that a step had at a cut, of which every later one takes a part."""

    changed = 0
    """How many keys the last epoch had beside those of its part."""

    def __init__(self) -> None:
        # A million keys in lists would stop everything whenever Python's collector comes by.
        self._blocks: list[tuple[Hashable, ...]] = []
        self._size = 0

    def add(self, keys: Iterable[Hashable]) -> None:
        """More of them."""
        if block := untracked(keys):
            self._blocks.append(block)
            self._size += len(block)

    def part(self) -> tuple[Kind, Iterable[Hashable]]:
        """The keys of the next part, and whether they are the rest.

        It has as many as have changed: where that is much, the chain had better be short.
        """
        left = max(-(-self._size // PARTS), self.changed, 1)
        part: list[tuple[Hashable, ...]] = []
        while self._blocks and left:
            block = self._blocks.pop()
            if len(block) > left:
                self._blocks.append(block[left:])
                block = block[:left]
            part.append(block)
            left -= len(block)
        return "part" if self._blocks else "rest", chain.from_iterable(part)
