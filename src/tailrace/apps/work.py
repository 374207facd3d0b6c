"""Work for operators that would have none: what they do is then only a matter of how much."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def with_work(
    function: Callable[[In], Out], operations: int, delay_s: float = 0.0
) -> Callable[[In], Out]:
    """The same function, after so many additions and a delay, in which its worker does nothing.

    >>> with_work(str.upper, 200_000)("a")
    'A'
    """
    if operations < 0:
        raise ValueError(f"operations is {operations}; it must be at least 0")
    if delay_s < 0:
        raise ValueError(f"delay_s is {delay_s}; it must be at least 0")
    if operations == 0 and not delay_s:
        return function

    def worked(record: In) -> Out:
        sum(range(operations))
        if delay_s:
            time.sleep(delay_s)
        return function(record)

    return worked
