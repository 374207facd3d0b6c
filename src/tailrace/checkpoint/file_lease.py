"""A lease behind a URL, where there are no locks: files of holders, renewed while these live.

FOLDER/leases/<generation>-<token>-<renewals>.json is written by whoever wants to be the holder of
that generation. It needs no more of a store than that a file is listed once it is written, and
never replaces one:

- Who finds a live holder is refused. Who finds none, or one that has died, writes a file of the
  next generation, and then lists again. Alone there, it is the holder. Otherwise it takes its file
  away and tries again after a while. Of two who try at a time each sees the other, or the later one
  sees the earlier: never are there two holders of one generation.
- Who sees a file of a higher generation has lost the lease.

Whether a holder lives is seen by its renewals, with the clock of whoever looks: no two clocks are
compared.
"""

from __future__ import annotations

import random
import re
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Self

from tailrace.checkpoint.errors import CheckpointError, LeaseLostError, MissingError
from tailrace.checkpoint.folder import Folder, shown_name
from tailrace.checkpoint.lease import (
    ANOTHER,
    Holder,
    died_here,
    held,
    last_generation,
    lost,
)

EXPIRES_S = 15.0
"""A holder that has not renewed its lease for so long is taken for dead."""
RENEW_S = 3.0
LOOK_S = 0.25
_MOST_TRIES = 50
_NAME = re.compile(r"leases/(\d+)-([0-9a-f]+)-(\d+)\.json")
_Seen = dict[tuple[int, str], str]
"""By generation and token: the newest file of that holder."""


class FileLease:
    """A file that says who writes here."""

    def __init__(self, folder: Folder, holder: Holder) -> None:
        self._folder = folder
        self._holder = holder
        self._lock = threading.Lock()
        self._released = threading.Event()
        self.generation = holder.generation

    @classmethod
    def take(
        cls,
        folder: Folder,
        job: str,
        *,
        expires_s: float = EXPIRES_S,
        keep: bool = True,
        sleep: Callable[[float], object] = time.sleep,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> FileLease:
        """See `take_lease`. With `keep` a thread renews it until it is released."""
        token = secrets.token_hex(8)
        rival: Holder | None = None
        for _ in range(_MOST_TRIES):
            # One look: who comes behind it shall be a rival, and not be taken over from.
            found = _look(folder)
            if who := _survivor(folder, found, expires_s, sleep, clock_s):
                raise held(folder, who)
            highest = max((generation for generation, _ in found), default=0)
            generation = max(highest, last_generation(folder)) + 1
            holder = Holder.here(job, generation, token)
            folder.write(_name(holder), holder.to_json())
            after = _look(folder)
            rivals = [who for who in after if who[0] >= generation and who[1] != token]
            if rivals:
                rival = _read(folder, after[max(rivals)]) or rival
                folder.delete(_name(holder))
                sleep(random.uniform(0.0, 2 * LOOK_S))
                continue
            _clear(folder, generation)
            lease = cls(folder, holder)
            if keep:
                threading.Thread(target=lease._keep, name="tailrace lease", daemon=True).start()
            return lease
        raise held(folder, rival)

    def check(self) -> None:
        """See Lease."""
        if self._released.is_set():
            raise lost(self._folder, "it was given back")
        found = _look(self._folder)
        highest = max(found, default=(0, ""))
        if highest[0] > self.generation:
            who = _read(self._folder, found[highest])
            raise lost(self._folder, f"{who or ANOTHER} has taken it over")
        if (self.generation, self._holder.token) not in found:
            raise lost(self._folder, f"{_name(self._holder)!r} has been deleted")

    def renew(self) -> None:
        """See Lease."""
        with self._lock:
            self.check()
            self._say(replace(self._holder, renewals=self._holder.renewals + 1))

    def release(self) -> None:
        """See Lease. A file stays, marked as given back: it has the generation."""
        with self._lock:
            if self._released.is_set():
                return
            with suppress(CheckpointError):  # then it is lost, or expires by itself
                self.check()
                more = self._holder.renewals + 1
                self._say(replace(self._holder, renewals=more, released=True))
            self._released.set()

    def _say(self, holder: Holder) -> None:
        """Write the next file, then take away the one before: at any time there is one."""
        self._folder.write(_name(holder), holder.to_json())
        self._folder.delete(_name(self._holder))
        self._holder = holder

    def _keep(self) -> None:
        while not self._released.wait(RENEW_S):
            try:
                self.renew()
            except LeaseLostError:
                return
            except CheckpointError:
                continue  # the store cannot be reached now; it is tried until somebody takes over

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _name(holder: Holder) -> str:
    return f"leases/{holder.generation}-{holder.token}-{holder.renewals:08}.json"


def _look(folder: Folder) -> _Seen:
    """Who is or wants to be a holder."""
    found: _Seen = {}
    for name in folder.names("leases"):
        parts = _NAME.fullmatch(name)
        if parts is not None:
            found[int(parts[1]), parts[2]] = name  # in order of their names, so the newest stays
    return found


def _clear(folder: Folder, generation: int) -> None:
    """Remove what holders of lower generations have left, half-written files as well."""
    for name in folder.sizes("leases", hidden=True):
        parts = _NAME.fullmatch(shown_name(name) or name)
        if parts is not None and int(parts[1]) < generation:
            folder.delete(name)


def _read(folder: Folder, name: str) -> Holder | None:
    try:
        return Holder.from_json(folder.read(name))
    except MissingError:
        return None


def living(folder: Folder) -> str:
    """See `held_by`."""
    return _survivor(folder, _look(folder), EXPIRES_S, time.sleep, time.monotonic)


def _survivor(
    folder: Folder,
    found: _Seen,
    expires_s: float,
    sleep: Callable[[float], object],
    clock_s: Callable[[], float],
) -> str:
    """Who of them holds the lease and shows that it lives, in words; empty: nobody does."""
    highest = max((generation for generation, _ in found), default=0)
    for who in found:
        if who[0] == highest and (said := _await_death(folder, who, expires_s, sleep, clock_s)):
            return said
    return ""


def _await_death(
    folder: Folder,
    who: tuple[int, str],
    expires_s: float,
    sleep: Callable[[float], object],
    clock_s: Callable[[], float],
) -> str:
    """Empty, when the holder has gone; who it is, when it shows that it lives."""
    first: str | None = None
    until_s = clock_s() + expires_s
    while (name := _look(folder).get(who)) is not None:
        holder = _read(folder, name)
        if holder is not None and (holder.released or died_here(holder)):
            return ""
        if first is not None and name != first:
            return str(holder or ANOTHER)
        if clock_s() >= until_s:
            return ""
        first = name
        sleep(LOOK_S)
    return ""
