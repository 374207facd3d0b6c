from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

SUB_BITS: int

def note(counts: dict[int, int], value_ns: int, count: int) -> int: ...
def deal_by_key(
    records: Iterator[Any],
    key_of: Callable[[Any], Hashable] | None,
    targets: dict[Hashable, int],
    parts: list[list[Any]],
    place: Callable[[Hashable], int],
) -> None: ...
def same_keys(records: list[Any]) -> None: ...
def scan(
    records: Iterator[Any],
    key_of: Callable[[Any], Hashable] | None,
    function: Callable[[Any, Any], Any],
    states: dict[Hashable, Any],
    fresh: Callable[[], Any],
    results: list[Any],
) -> None: ...
def flat_map(
    records: Iterator[Any], function: Callable[[Any], Iterable[Any]], results: list[Any]
) -> None: ...
