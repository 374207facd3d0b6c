from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from tailrace.runtime.shards import Shards

SUB_BITS: int

def note(counts: dict[int, int], value_ns: int, count: int) -> int: ...
def merge(counts: dict[int, int], other: dict[int, int]) -> None: ...
def scan(
    records: Iterator[Any],
    pairs: bool,
    function: Callable[[Any, Any], Any],
    states: Shards,
    fresh: Callable[[Hashable], Any],
    results: list[Any] | None,
) -> None: ...
def flat_map(
    records: Iterator[Any], function: Callable[[Any], Iterable[Any]], results: list[Any]
) -> None: ...
def seconds_to_ns(moment: Any) -> int | None: ...
def untracked(keys: Iterable[Hashable]) -> tuple[Hashable, ...]: ...
