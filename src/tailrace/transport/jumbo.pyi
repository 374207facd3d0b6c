from collections.abc import Callable
from typing import Any

TAG: int

def plain(kind: type, first: str, second: str) -> None: ...
def encode(parcels: list[tuple[int, list[Any]]], stamp: int) -> tuple[bytes, list[Any]]: ...
def decode(
    payload: bytes | bytearray | memoryview, unpickled: Callable[[memoryview], list[Any]]
) -> tuple[int, list[tuple[int, list[Any]]]]: ...
