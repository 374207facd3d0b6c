"""When each technique is worth a trial: table 5.4 of Du's thesis, on what was measured.

Limits are lower for what is on than for what is not (hysteresis). From how much unevenness on
balancing is tried is learnt: where it did not help, more is needed the next time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tailrace.tail.modes import OFF, Tail

UNEVEN = 1.2
"""How much longer than the fastest the slowest receiver takes; Du's threshold."""
BUSY = 0.5
"""Of the time, receivers of a stream; Du has found 0.58 to be where sharing beats replay."""
HAS_QUEUES = 0.3
"""From there on records meet others where they go, and a choice is worth something."""
IDLE, STILL_IDLE = 0.15, 0.1
"""Where receivers are busy for less, it hardly matters who gets what, unless they are unequal."""
HARDLY = 0.02
"""Up to there not even then."""
CALM = 0.6
"""Up to there workers have room for what is sent twice."""
LONG_TAIL = 7.0
"""The p99 over the median: from there on replay is worth a look. Exponential times have 6.6."""
STUCK_TAIL = 10.0
"""From there on the table speaks for it."""
LATE_MS = 2.0
"""A p99 below that is of wake-ups and turns of the scheduler, and over before a copy is there."""
_MOST_UNEVEN = 4.0


@dataclass(frozen=True)
class Receiving:
    """The receivers of one stream in one period."""

    busy: float
    """For which part of the time their workers worked, by the clock: one that waits for a core
    is busy, too. Mean."""
    uneven: float
    """How much longer records take at the slowest receiver than at the fastest, or the wait for
    them and they themselves, whichever is more."""
    workers: int
    """That have some of them."""
    shareable: bool
    """Whether they get nothing but shuffled records, and are all on one node with all senders."""

    def __str__(self) -> str:
        told = f"receivers {self.busy:.0%} busy"
        if self.workers < 2:
            return f"{told}, all in one worker"
        return f"{told}, the slowest {self.uneven:.1f} times as slow as the fastest"


@dataclass(frozen=True)
class Period:
    """What a job did in one period."""

    p50_ms: float
    p99_ms: float
    """From source to sink."""
    busy: float
    """Of all workers, mean."""
    streams: Mapping[str, Receiving]
    """Those that may be dealt in other ways."""
    records: int = 1000
    """Whose latencies these are."""
    replayable: bool = False
    """Whether there is another way for what some source emits, and it may be sent twice."""

    @property
    def tail(self) -> float:
        """How much longer than most the slowest take."""
        return self.p99_ms / self.p50_ms if self.p50_ms > 0 else 1.0


@dataclass(frozen=True)
class Setting:
    """What is on: the mode of each stream that has one, in order; and replay, for all or none.

    >>> print(Setting.of({"a -> b": "shared", "b -> c": "off"}), Setting.of({}, replay=True))
    shared (a -> b) replay
    """

    modes: tuple[tuple[str, Tail], ...] = ()
    replay: bool = False

    @classmethod
    def of(cls, modes: Mapping[str, Tail], *, replay: bool = False) -> Setting:
        """Streams that are off are left out."""
        return cls(tuple(sorted((s, mode) for s, mode in modes.items() if mode != OFF)), replay)

    def only(self, streams: Collection[str], *, replay: bool) -> Setting:
        """What of it is about these."""
        kept = {name: mode for name, mode in self.modes if name in streams}
        return Setting.of(kept, replay=self.replay and replay)

    def is_part_of(self, other: Setting) -> bool:
        """Whether the other has all that is on here."""
        return set(self.modes) <= set(other.modes) and (other.replay or not self.replay)

    def __str__(self) -> str:
        by_mode: dict[str, list[str]] = {}
        for name, mode in self.modes:
            by_mode.setdefault(mode, []).append(name)
        told = [f"{mode} ({', '.join(names)})" for mode, names in by_mode.items()]
        return " and ".join([*told, *(["replay"] if self.replay else [])]) or "off"


OFF_SETTING = Setting()


class Thresholds:
    """From which unevenness on a stream is balanced; learnt by stream."""

    def __init__(self) -> None:
        self._uneven: dict[str, float] = {}

    def uneven(self, stream: str) -> float:
        """How uneven it has to be."""
        return self._uneven.get(stream, UNEVEN)

    def wrong(self, setting: Setting, period: Period) -> None:
        """It did not help, in such a period."""
        for name, _ in setting.modes:
            if name in period.streams:
                seen = min(max(period.streams[name].uneven, UNEVEN), _MOST_UNEVEN)
                self._uneven[name] = max(self.uneven(name), (self.uneven(name) + seen) / 2)

    def right(self, setting: Setting) -> None:
        """It did."""
        for name, _ in setting.modes:
            self._uneven[name] = (self.uneven(name) + UNEVEN) / 2


def _worth_it(period: Period) -> dict[str, Receiving]:
    return {
        name: one
        for name, one in period.streams.items()
        if one.workers > 1 and one.busy > (HARDLY if one.uneven > UNEVEN else IDLE)
    }


def by_table(period: Period, thresholds: Thresholds) -> dict[str, Tail]:
    """What the table says for each stream; those of which it says nothing are left out."""
    found: dict[str, Tail] = {}
    for name, one in _worth_it(period).items():
        if one.uneven > thresholds.uneven(name):
            found[name] = "balance"
        elif one.busy > BUSY:
            found[name] = "shared" if one.shareable else "balance"
        elif one.busy > HAS_QUEUES:
            found[name] = "balance"
    return found


def suggestions(
    kept: Setting, period: Period, thresholds: Thresholds
) -> Iterator[tuple[Setting, str, bool]]:
    """What is worth a trial, the most likely first; why; and whether the table speaks for it."""
    table = by_table(period, thresholds)
    if table:
        # The others, too: a queue that one stream is spared is often met at the next.
        among = (n for n, one in period.streams.items() if one.workers > 1 and one.busy > HARDLY)
        rest: dict[str, Tail] = dict.fromkeys(among, "balance")
        yield Setting.of({**rest, **table}, replay=kept.replay), _told(table, period), True
    calm = period.busy < CALM and all(one.busy < CALM for one in period.streams.values())
    late = period.p99_ms > LATE_MS and period.tail > LONG_TAIL
    if period.replayable and calm and late and not kept.replay:
        why = f"the p99 is {period.tail:.1f} times the median, workers are {period.busy:.0%} busy"
        # Beside what is on: that helps, and would be missed while this is tried.
        yield Setting.of(dict(kept.modes), replay=True), why, period.tail > STUCK_TAIL
    # Beyond the table: what costs a period at most is worth a look where there is any queue.
    ways: tuple[Tail, ...] = ("balance", "shared")
    for mode in ways:
        modes = {
            name: mode
            for name, one in _worth_it(period).items()
            if mode != "shared" or one.shareable
        }
        if modes:
            setting = Setting.of(modes, replay=kept.replay)
            yield setting, f"{_told(modes, period)}; as another way to deal", False


def _told(names: Iterable[str], period: Period) -> str:
    return "; ".join(f"{name}: {period.streams[name]}" for name in names)


def wanted(kept: Setting, period: Period) -> tuple[Setting, str]:
    """What is left of a setting for which there is still a reason, and why the rest is not."""
    modes = {}
    for name, mode in kept.modes:
        one = period.streams.get(name)
        if one is not None and one.busy > STILL_IDLE:
            modes[name] = mode
    replay = kept.replay and period.busy < CALM
    gone = [f"{name}: {period.streams.get(name)}" for name, _ in kept.modes if name not in modes]
    if kept.replay and not replay:
        gone.append(f"workers are {period.busy:.0%} busy")
    return Setting.of(modes, replay=replay), f"no longer needed ({'; '.join(gone)})"
