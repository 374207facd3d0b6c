"""Who is killed when, by a seed; and how to kill nobody but those whom we have started."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

WORKER, SUPERVISOR, EXECUTOR, DRIVER = "worker", "supervisor", "executor", "driver"
LOCAL = {WORKER: 0.77, SUPERVISOR: 0.2, DRIVER: 0.03}
CLUSTER = {WORKER: 0.4, SUPERVISOR: 0.15, EXECUTOR: 0.4, DRIVER: 0.05}
"""How often each kind is killed, where executors are processes of their own or are not."""
MEAN_GAP_S = 0.5
_PARENT, _SESSION = 1, 3  # places in /proc/PID/stat after the name

Workers = Sequence[tuple[int, int]]
"""The process of each worker, and that of its supervisor."""


@dataclass(frozen=True)
class Kill:
    """So long after the one before, one of a kind."""

    gap_s: float
    kind: str
    pick: float
    """Which of them, from 0 to 1."""


def kills(count: int, seed: int, shares: dict[str, float]) -> list[Kill]:
    """The same for the same seed; of every kind at least one, if there are enough.

    Distances are exponential: many come while the job has not recovered from the one before.
    """
    chance = random.Random(f"{seed} {sorted(shares)}")
    kinds = list(shares)[:count]
    kinds += chance.choices(list(shares), list(shares.values()), k=count - len(kinds))
    chance.shuffle(kinds)
    return [
        Kill(min(chance.expovariate(1 / MEAN_GAP_S), 2.0), kind, chance.random()) for kind in kinds
    ]


def victim(kill: Kill, workers: Workers, driver: int) -> int | None:
    """The process; None: there is none of that kind now."""
    if kill.kind == DRIVER:
        return driver
    place = {WORKER: 0, SUPERVISOR: 1, EXECUTOR: 1}[kill.kind]
    found = sorted({pair[place] for pair in workers})
    if not found:
        return None
    pid = found[int(kill.pick * len(found))]
    return executor_of(pid) if kill.kind == EXECUTOR else pid


def executor_of(supervisor: int) -> int | None:
    """The JVM whose daemon has forked the process of a task."""
    try:
        return _field(_field(supervisor, _PARENT), _PARENT)
    except (OSError, IndexError):
        return None


def ancestors(pid: int) -> Iterator[int]:
    """A process, its parent, and so on, as long as they are there."""
    with suppress(OSError, IndexError):
        while pid > 1:
            yield pid
            pid = _field(pid, _PARENT)


def strike(pid: int, session: int) -> bool:
    """Kill a process of a session, and no other that has got its number since."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if _field(pid, _SESSION) != session:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except (OSError, IndexError):
        return False
    finally:
        os.close(handle)
    return True


def _field(pid: int, place: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[place])
