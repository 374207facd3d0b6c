"""Work for operators that would have none: what they do is then only a matter of how much."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def with_work(function: Callable[[In], Out], operations: int) -> Callable[[In], Out]:
    """The same function, after so many additions.

    >>> with_work(str.upper, 200_000)("a")
    'A'
    """
    if operations < 0:
        raise ValueError(f"operations is {operations}; it must be at least 0")
    if operations == 0:
        return function

    def worked(record: In) -> Out:
        sum(range(operations))
        return function(record)

    return worked
