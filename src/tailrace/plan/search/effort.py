"""How much a search may still do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Effort:
    """Steps that a search may still take: layouts, or edges and moves, that it looks at.

    Counted so, a search finds the same on every machine. `late` may end it earlier, by the clock.
    """

    left: int
    late: Callable[[], bool] = lambda: False

    def spend(self, steps: int = 1) -> bool:
        """Take so many; False when there is none left."""
        self.left -= steps
        if self.left % 64 < steps and self.late():
            self.left = 0
        return self.left > 0
