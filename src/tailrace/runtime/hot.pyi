from collections.abc import Callable, Hashable, Iterator
from typing import Any

def deal_by_key(
    records: Iterator[Any],
    key_of: Callable[[Any], Hashable] | None,
    targets: dict[Hashable, int],
    parts: list[list[Any]],
    place: Callable[[Hashable], int],
) -> None: ...
def scan(
    records: Iterator[Any],
    key_of: Callable[[Any], Hashable] | None,
    function: Callable[[Any, Any], Any],
    states: dict[Hashable, Any],
    fresh: Callable[[], Any],
    results: list[Any],
) -> None: ...
