"""What coordinator and workers tell each other. Plain values, pickled, over authenticated TCP."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tailrace._version import __version__
from tailrace.checkpoint.sections import Section
from tailrace.control.changing import CallOff, Prepare, Switch
from tailrace.control.clocks import AskClock, ClockTold
from tailrace.routing.pairs import Sketched
from tailrace.runtime.counting import LaneCounts, SentBy, WaitCounts, columns
from tailrace.runtime.deployment import Layout
from tailrace.runtime.guard import Counts
from tailrace.runtime.histogram import Histogram
from tailrace.tail.modes import Tail
from tailrace.transport.identity import Identity
from tailrace.transport.peer import MOST_WORKERS

_PROTOCOL = 7
"""To be raised when workers and coordinators of before would misunderstand each other."""
VERSION = (
    f"tailrace {__version__} (protocol {_PROTOCOL},"
    f" Python {sys.version_info.major}.{sys.version_info.minor})"
)
"""What speaks here. Every hello has it; ends that differ do not work together."""

KIND = 2
"""The frame kind of these messages (pickle, as the codecs number them)."""

COORDINATOR_ID, GUEST_ID = MOST_WORKERS, MOST_WORKERS + 1
"""By which connections know who is no worker: the coordinator, and those who feed sources."""

SILENCE_S = 5
"""A host that has not answered for so long is gone, for the coordinator and for its workers.

Workers are not asked to answer themselves: a user's function, or the opening of an operator, may
hold one up for as long as it likes. A process that dies is noticed by its closed connection.
"""

_REPORT_S = 0.001
"""For each worker: the coordinator has so much time for a report, and needs less than half."""


@dataclass(frozen=True)
class Settings:
    """What every worker needs to start. `job` is the pickled graph, placement and limits.

    The placement gives the place of each instance; who sits there is said when all have met.
    """

    workers: int
    coordinator: tuple[str, int]
    secret: bytes = field(repr=False)
    """Lets a worker in at the coordinator, and tells by which certificate to know it."""
    job: bytes = field(repr=False)
    ring_bytes: int = 8 << 20
    node: str = "memory"
    progress_s: float = 0.5
    cores: tuple[int | None, ...] = ()
    """The core that the worker in each place of the plan is bound to, if any are."""
    waiting: str = "balanced"
    """How workers wait: see `tailrace.control.waiting`."""
    ports: tuple[int, int] | None = None
    """The first and the last port that workers may listen at; without, any."""
    checkpoint: str = ""
    """The folder of its checkpoints, if it makes any."""
    generation: int = 0
    """Of the lease on that folder."""
    recover: bool = False
    """Whether the job goes on without a worker that is lost: a new process takes its place."""
    launch: int = 0
    """How often Spark had to be asked for workers anew; those of before are not wanted any more."""
    stage: int = 0
    """Which of the stages of that launch these are: 0 the first, others by `Joining.number`."""
    first_rank: int = 0
    """The rank of the first of them; the last is that of the last worker."""
    count_pairs: bool = False
    """Whether workers count from the start which keys lead to which."""
    replay: str = "off"
    """What is sent again for short tails, by name: see `tailrace.tail.replay`."""

    @property
    def report_s(self) -> float:
        """How often each worker reports: so many do it less often, for the coordinator's sake."""
        return max(self.progress_s, self.workers * _REPORT_S)


@dataclass(frozen=True)
class Welcome:
    """The coordinator's first word to a worker: what it needs to be known by the others.

    It only ever travels by TLS. With an identity, all that workers tell each other does, too.
    """

    secret: bytes = field(repr=False)
    identity: Identity | None


@dataclass(frozen=True)
class Hello:
    """A worker is there: how others reach it."""

    rank: int
    pid: int
    host: str
    executor: str
    ring: str
    address: tuple[str, int]
    version: str = VERSION
    launch: int = 0
    """Which of the job's launches it stems from."""
    supervisor: int = 0
    """The pid of the process that starts another in its place when it is lost; 0: none does."""
    life: int = 0
    """How many that one has started before."""
    stage: int = 0
    """Which of the stages of its launch it belongs to."""
    board: str = ""
    """Where others of its node say what became of the runs of its sources."""


@dataclass(frozen=True)
class Peers:
    """All workers are there, in the order of their ranks. `seats` has the rank of each place.

    They meet whom they have not met yet, and begin with the state of the `epoch`, which is in the
    `manifest` of that name in the folder `kept_in`; epoch 0 is the empty beginning, and has none.
    """

    hellos: tuple[Hello, ...]
    seats: tuple[int, ...]
    attempt: int = 0
    epoch: int = 0
    manifest: str = ""
    kept_in: str = ""
    layout: Layout | None = None
    """Who runs where and owns what, by places; None: as in the settings."""


@dataclass(frozen=True)
class Joined:
    """Those are about to join the job: open ways to them while you run, and say when they are open.

    Nothing goes there yet. Who was about to join, and is not named any more, will not.
    """

    round: int
    hellos: tuple[Hello, ...]


@dataclass(frozen=True)
class Reached:
    """A worker has done what the `Joined` or `Members` of that round asks for."""

    rank: int
    round: int
    ways: dict[int, str] = field(default_factory=dict)
    """How it reaches those that join."""
    trouble: str = ""
    """Why it cannot, if so."""
    attempt: int = 0


@dataclass(frozen=True)
class Members:
    """So many take part from now on: who has joined is one of them, ways to others are closed."""

    round: int
    workers: int


@dataclass(frozen=True)
class Leave:
    """Nobody needs this worker any more: report for the last time, and end."""


@dataclass(frozen=True)
class RollBack:
    """Somebody was lost: stop at once, and wait for the `Peers` of this attempt."""

    attempt: int


@dataclass(frozen=True)
class BeginEpoch:
    """Cut the sources: an epoch ends here. Behind the `last` one they give nothing any more."""

    epoch: int
    last: bool = False
    change: int = 0
    """The number of the change that was prepared and comes with it; 0: none does."""


@dataclass(frozen=True)
class Prepared:
    """A worker has it, or says why it cannot."""

    rank: int
    number: int
    trouble: str = ""
    attempt: int = 0


@dataclass(frozen=True)
class Moved:
    """All that was to come to a worker, or to leave it, has."""

    rank: int
    number: int
    moved_keys: int
    attempt: int = 0


@dataclass(frozen=True)
class SetReplay:
    """Send again what that says from now on, by name: see `tailrace.tail.replay`."""

    replay: str


@dataclass(frozen=True)
class Snapshotted:
    """What a worker adds to an epoch is safe: where it lies, and what its sinks have prepared."""

    rank: int
    epoch: int
    sections: tuple[Section, ...]
    handles: tuple[tuple[str, bytes], ...]
    """Sinks, and pickled handles."""
    finished: tuple[tuple[str, int], ...]
    """Copies of operators, by index, whose input had ended."""
    ended: bool
    """Whether everything here had."""
    attempt: int = 0


@dataclass(frozen=True)
class Committed:
    """An epoch counts: let it be seen. After the `last` one, end."""

    epoch: int
    last: bool = False


@dataclass(frozen=True)
class Settled:
    """A worker has nothing left to do for an epoch that counts: the next may begin."""

    rank: int
    epoch: int
    attempt: int = 0


@dataclass(frozen=True)
class Drained:
    """All instances of a worker have ended; it waits for an epoch that says so."""

    rank: int
    attempt: int = 0


@dataclass(frozen=True)
class Met:
    """A worker has reached all others; it may still be needed by those who have not."""

    rank: int
    attempt: int = 0


@dataclass(frozen=True)
class Open:
    """Everybody has reached everybody: open the operators, which may take its time."""


@dataclass(frozen=True)
class Ready:
    """A worker has its channels. `ways` says how it reaches each other one: ring or tcp."""

    rank: int
    ways: dict[int, str]
    attempt: int = 0


@dataclass(frozen=True)
class Go:
    """Everybody is ready: start the sources."""


@dataclass(frozen=True)
class SetTail:
    """Deal the records of these streams, by number, in other ways from now on."""

    modes: Mapping[int, Tail]


@dataclass
class Progress:
    """What a worker has done since it started.

    When it has travelled, its numbers are there at once and the rest is unpacked when somebody
    looks: the coordinator of a thousand workers hears more reports than anybody ever looks at.
    """

    rank: int
    at_ns: int
    ended: bool = False
    cpu_s: float = 0.0
    spun_s: float = 0.0
    """Of that, about, what it has waited by spinning."""
    running_s: float = 0.0
    """Since the sources started."""
    held_s: float = 0.0
    """For how long one batch has kept it from reporting by itself; 0: nothing does."""
    held_in: str = ""
    """The operator that does, if that can be told."""
    clock_uncertainty_ns: int = 0
    """How far its clock may be from the job's; 0 on the coordinator's host."""
    attempt: int = 0
    """The one that all this is of."""
    change: int = 0
    """The last change of the deployment that is done there."""
    sampled_pairs: int = 0
    """How many records `pairs` are of."""
    operators: dict[str, Counts] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    latency: dict[str, Histogram] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    transfer: dict[str, Histogram] = field(default_factory=dict)
    wait: dict[str, Histogram] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    """How many keys have state here, by operator."""
    queued: dict[str, int] = field(default_factory=dict)
    room: dict[str, int] = field(default_factory=dict)
    """How many records the queues may hold."""
    throttled: set[str] = field(default_factory=set)
    """Who waits for whom: streams whose receivers have no room."""
    lanes: LaneCounts = field(default_factory=lambda: LaneCounts(*columns((), 4)))
    """What has gone from here to each gate."""
    sent_by: list[SentBy] = field(default_factory=list)
    """What each instance here has sent to each receiver."""
    waits: WaitCounts = field(default_factory=lambda: WaitCounts(*columns((), 4)))
    """How long what came has waited, by link."""
    instances: list[tuple[int, float, float]] = field(default_factory=list)
    """For each instance here the time in its operators and its share of the CPU time, in s."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Connections that were refused here, by reason."""
    replays: dict[str, int] = field(default_factory=dict)
    """Of the batches of its sources: see `Summary.replays`."""
    pairs: list[Sketched] = field(default_factory=list)
    """Which keys led to which, if that is counted; not in every report."""

    def __reduce__(self) -> tuple[Any, ...]:
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        rest = {name: value for name, value in values.items() if name not in numbers}
        return Progress._arrived, (numbers, pickle.dumps(rest, 5))

    @staticmethod
    def _arrived(numbers: dict[str, Any], packed: bytes) -> Progress:
        progress = object.__new__(Progress)
        progress.__dict__.update(numbers, _packed=packed)
        return progress

    def __getattr__(self, name: str) -> Any:
        """Unpack what was not looked at yet; only ever called for what is not there."""
        # Several threads may look at a time: what is packed goes only when the rest is there.
        packed = self.__dict__.get("_packed")
        if packed is not None:
            self.__dict__.update(pickle.loads(packed))
            self.__dict__.pop("_packed", None)
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(name)


@dataclass(frozen=True)
class Failed:
    """A worker cannot go on."""

    rank: int
    reason: str
    traceback: str
    operator: str = ""
    """Whose code raised, and on which record (its repr); empty if it was nobody's, or on none."""
    record: str = ""
    damaged: bool = False
    """What it was to go on from is damaged or missing, and will be the next time."""


@dataclass(frozen=True)
class Suspects:
    """A worker cannot reach a peer any more, and waits to be told what became of it."""

    rank: int
    peer: int
    reason: str
    attempt: int = 0


@dataclass(frozen=True)
class Stop:
    """End: `drain` lets the sources end and everything run out, otherwise at once."""

    drain: bool
    error: str = ""
    """Why, if the job has failed: what went wrong, and the traceback."""


Message = (
    Welcome
    | Hello
    | Peers
    | Joined
    | Reached
    | Members
    | Leave
    | RollBack
    | BeginEpoch
    | Prepare
    | Prepared
    | CallOff
    | Switch
    | Moved
    | SetReplay
    | Snapshotted
    | Committed
    | Settled
    | Drained
    | Met
    | Open
    | Ready
    | Go
    | SetTail
    | Progress
    | Suspects
    | Failed
    | Stop
    | AskClock
    | ClockTold
)

_MOST_TEXT = 256 * 1024


def pack(message: Message) -> bytes:
    """A message as bytes. Of a failure's texts only as much as is of use to anybody."""
    match message:
        case Failed():
            reason, text = shortened(message.reason), shortened(message.traceback)
            message = replace(message, reason=reason, traceback=text)
        case Stop():
            message = replace(message, error=shortened(message.error))
    return pickle.dumps(message, 5)


def shortened(text: str, most: int = _MOST_TEXT) -> str:
    """The beginning and the end of a text that is too long, and how much is left out between.

    >>> shortened("0123456789" * 3, most=10)
    '01234\\n[... 20 characters left out ...]\\n56789'
    """
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def unpack(payload: Any) -> Message:
    """The message again; only ever called on what an authenticated member of the job sent."""
    message: Message = pickle.loads(payload)
    return message
