from collections import deque
from collections.abc import Callable
from typing import Any

from tailrace.runtime.board import Boards
from tailrace.runtime.exchange import Stamp
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.keypairs import PairCounter
from tailrace.runtime.limits import Limits

class Inlet:
    unreported: int
    unreported_bytes: int
    watermark: int
    ended: bool
    fresh: bool
    reopens: bool
    prompt: bool
    label: str
    def __init__(
        self,
        gate: int,
        peer: int,
        port: int,
        stream: int,
        queue: Queue,
        transfer: Histogram,
        wait: Histogram,
        limits: Limits,
        base: int = 0,
    ) -> None: ...
    @property
    def base(self) -> int: ...
    @property
    def gate(self) -> int: ...
    @property
    def peer(self) -> int: ...
    @property
    def port(self) -> int: ...
    @property
    def stream(self) -> int: ...
    @property
    def received(self) -> int: ...
    @property
    def taken(self) -> int: ...
    @property
    def waited_ns(self) -> int: ...
    @property
    def held(self) -> bool: ...
    @property
    def messages(self) -> deque[tuple[list[Any], int, int, int]]: ...
    @property
    def queue(self) -> Queue: ...
    @property
    def queued(self) -> int: ...
    @property
    def load(self) -> tuple[int, int, int, int, int]: ...
    def deliver(self, items: list[Any], sent_ns: int, now_ns: int, size_bytes: int) -> None: ...
    @property
    def window(self) -> int: ...
    def report(self) -> None: ...
    def hold(self) -> None: ...
    def release(self, now_ns: int = 0) -> None: ...

def deliver(
    inlets: dict[tuple[int, int], Inlet],
    sender: int,
    parcels: list[Any],
    sent_ns: int,
    now_ns: int,
    size_bytes: int,
) -> None: ...

class Queue:
    peak: int
    counter: PairCounter | None
    keeper: Any
    boards: Boards | None
    leaves: bool
    noted: bool
    @property
    def order(self) -> deque[Inlet]: ...
    @property
    def queued(self) -> int: ...
    @property
    def service_ns(self) -> int: ...
    def __len__(self) -> int: ...
    def note_in(self, filled: list[int], place: int) -> None: ...
    def take(
        self,
        instance: Any,
        stamp: Stamp,
        clock_ns: Callable[[], int],
        most_messages: int,
        due: list[Inlet],
        due_bytes: int,
        enough: int = 2048,
    ) -> int: ...
