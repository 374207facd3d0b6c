"""What coordinator and workers tell each other. Plain values, pickled, over authenticated TCP."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

from tailrace.runtime.core import LinkCounts
from tailrace.runtime.guard import Counts
from tailrace.runtime.histogram import Histogram

KIND = 2
"""The frame kind of these messages (pickle, as the codecs number them)."""

SILENCE_S = 5
"""A host that has not answered for so long is gone, for the coordinator and for its workers.

Workers are not asked to answer themselves: a user's function, or the opening of an operator, may
hold one up for as long as it likes. A process that dies is noticed by its closed connection.
"""


@dataclass(frozen=True)
class Settings:
    """What every worker needs to start. `job` is the pickled graph, placement and limits.

    The placement gives the place of each instance; who sits there is said when all have met.
    """

    workers: int
    coordinator: tuple[str, int]
    secret: bytes = field(repr=False)
    job: bytes = field(repr=False)
    ring_bytes: int = 8 << 20
    node: str = "memory"
    progress_s: float = 0.5
    cores: tuple[int | None, ...] = ()
    """The core that the worker in each place of the plan is bound to, if any are."""


@dataclass(frozen=True)
class Hello:
    """A worker is there: how others reach it."""

    rank: int
    pid: int
    host: str
    executor: str
    ring: str
    address: tuple[str, int]


@dataclass(frozen=True)
class Peers:
    """All workers are there, in the order of their ranks. `seats` has the rank of each place."""

    hellos: tuple[Hello, ...]
    seats: tuple[int, ...]


@dataclass(frozen=True)
class Ready:
    """A worker has its channels. `ways` says how it reaches each other one: ring or tcp."""

    rank: int
    ways: dict[int, str]


@dataclass(frozen=True)
class Go:
    """Everybody is ready: start the sources."""


@dataclass
class Progress:
    """What a worker has done since it started."""

    rank: int
    at_ns: int
    ended: bool = False
    cpu_s: float = 0.0
    running_s: float = 0.0
    """Since the sources started."""
    operators: dict[str, Counts] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    latency: dict[str, Histogram] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    transfer: dict[str, Histogram] = field(default_factory=dict)
    wait: dict[str, Histogram] = field(default_factory=dict)
    queued: dict[str, int] = field(default_factory=dict)
    room: dict[str, int] = field(default_factory=dict)
    """How many records the queues may hold."""
    throttled: set[str] = field(default_factory=set)
    """Who waits for whom: streams whose receivers have no room."""
    links: list[LinkCounts] = field(default_factory=list)
    """What each link from here has carried: link, messages, records, bytes."""
    instances: list[tuple[int, float, float]] = field(default_factory=list)
    """For each instance here the time in its operators and its share of the CPU time, in s."""


@dataclass(frozen=True)
class Failed:
    """A worker cannot go on."""

    rank: int
    reason: str
    traceback: str


@dataclass(frozen=True)
class Stop:
    """End: `drain` lets the sources end and everything run out, otherwise at once."""

    drain: bool
    error: str = ""
    """Why, if the job has failed: what went wrong, and the traceback."""


Message = Hello | Peers | Ready | Go | Progress | Failed | Stop


def pack(message: Message) -> bytes:
    """A message as bytes."""
    return pickle.dumps(message, 5)


def unpack(payload: Any) -> Message:
    """The message again; only ever called on what an authenticated member of the job sent."""
    message: Message = pickle.loads(payload)
    return message
