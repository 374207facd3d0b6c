"""Kill -9 at random moments: workers, supervisors, executors, drivers. Nothing may be lost.

    make chaos                        1,000 kills, and changes meanwhile
    python bench/chaos.py --kills N [--seed S] [--changes] [--local] [--keep FOLDER]

A job (`chaos_parts/workload.py`: a keyed sum, a windowed count, a join; NDJSON, text and Parquet)
runs with checkpoints in a process that is its driver, first on a local Spark, then (not with
`--local`) on local-cluster, where the executors are processes that can be killed, too. When it has
ended, what is in the files is compared with what must be there, and another one begins, until there
were enough kills. A driver that was killed is started again at once, on the same folder.

With `--changes` the job is changed all the while (`chaos_parts/changes.py`): other numbers of
instances, other places, tables of keys, and, where Spark has task slots, other numbers of workers.
Changes that kills get in the way of are called off; that is counted, and no error. That an operator
fails is one, though the job goes on behind it.

The seed decides who is killed and after how long, not what they are just doing. `recovery_ms` is
the time from a kill to the moment at which all workers run again, without the one killed: of a
driver it has the start of Python, of a JVM and of Spark in it.

Only processes of the sessions that were started here are killed. All files are in one temporary
folder, `--keep` leaves them for who wants to know. The exit status is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from chaos_parts.driving import Driver, DriverEndedError
from chaos_parts.kills import (
    CLUSTER,
    DRIVER,
    EXECUTOR,
    LOCAL,
    SUPERVISOR,
    Kill,
    ancestors,
    kills,
    strike,
    victim,
)
from chaos_parts.workload import Audit, Order

RATE_PER_S = 1500
SECONDS = 10.0
"""Of one job, if nothing is killed."""
PATIENCE_S = 90.0
"""How long nothing may happen to a job."""
SLOW_MS = 5000.0
"""A recovery that is worth a line."""
CLUSTER_SHARE = 0.12
"""Of all kills, those on local-cluster."""
SPARKS = {"local": LOCAL, "local-cluster[2,1,1024]": CLUSTER}


@dataclass
class Found:
    """What has come of all kills so far."""

    by_kind: Counter[str] = field(default_factory=Counter)
    recovery_ms: dict[str, list[float]] = field(default_factory=dict)
    jobs: int = 0
    results: int = 0
    lost: int = 0
    duplicated: int = 0
    left_behind: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    called_off: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, audit: Audit) -> None:
        """A job has ended."""
        self.jobs += 1
        self.results += audit.results
        self.lost += audit.lost
        self.duplicated += audit.duplicated
        self.problems += audit.samples

    def failed(self, failures: Sequence[str]) -> None:
        """Something went wrong in a job by itself, as it may say several times."""
        self.problems += [one for one in failures if one not in self.problems]

    def headline(self, seed: int, seconds: float) -> dict[str, Any]:
        """The last line."""
        times = [one for of_kind in self.recovery_ms.values() for one in of_kind]
        return {
            "kills": self.by_kind.total(),
            "by_kind": dict(self.by_kind),
            "lost": self.lost,
            "duplicated": self.duplicated,
            "median_recovery_ms": round(median(times), 1) if times else None,
            "slowest_recovery_ms": round(max(times), 1) if times else None,
            "recovery_ms_by_kind": {
                kind: {"median": round(median(of_kind), 1), "slowest": round(max(of_kind), 1)}
                for kind, of_kind in self.recovery_ms.items()
            },
            "jobs": self.jobs,
            "results": self.results,
            "left_behind": self.left_behind,
            "changes": self.changes.total(),
            "changes_by_kind": dict(self.changes),
            "changes_called_off": self.called_off,
            "problems": self.problems[:20],
            "seed": seed,
            "seconds": round(seconds, 1),
        }


class Chaos:
    """Kills on one kind of Spark."""

    def __init__(
        self, master: str, folder: Path, found: Found, seed: int, say: Any, *, changes: bool
    ) -> None:
        self._master = master
        self._folder = folder
        self._found = found
        self._seed = seed
        self._say = say
        self._changes = changes
        self._driver = Driver(master, folder)
        self._open: list[tuple[str, set[int], int]] = []  # kind, who went, when; not yet recovered
        self._workers: list[tuple[int, int]] = []
        self._ran = False  # the job, since its driver was started

    def run(self, todo: list[Kill]) -> None:
        """Jobs, until all of these kills are done."""
        while todo:
            number = self._found.jobs
            folder = self._folder / f"job-{number}"
            records, seed = round(SECONDS * RATE_PER_S), self._seed + number
            order = Order(str(folder), records, RATE_PER_S, seed, self._changes)
            if not self._run_one(order, todo):
                return
            audit = Audit.of(order)
            self._found.add(audit)
            self._say(
                f"job {number}: {audit.results:,} results, {audit.lost} lost, {audit.duplicated}"
                f" too much; {len(todo)} kills to go"
            )
            if not audit.samples:
                shutil.rmtree(folder)

    def _run_one(self, order: Order, todo: list[Kill]) -> bool:
        """One job to its end; whether it came to a good one."""
        self._driver.begin(order)
        next_s = float("inf")
        heard_s = time.monotonic()
        self._workers, self._ran = [], False
        while True:
            now_s = time.monotonic()
            if self._workers and next_s == float("inf") and todo:
                next_s = now_s + todo[0].gap_s
            try:
                for event in self._driver.hear(min(max(next_s - now_s, 0.0), 0.5)):
                    heard_s = time.monotonic()
                    self._found.failed(event.get("failures", ()))
                    if "done" in event:
                        self._open.clear()
                        return True
                    if "failed" in event:
                        return self._fail(f"{event['failed']}; {event['events']}")
                    if "wrong" in event:
                        return self._fail(f"{event['change']} went wrong: {event['wrong']}")
                    self._note(event)
            except DriverEndedError as ended:
                return self._fail(str(ended))
            now_s = time.monotonic()
            if now_s - heard_s > PATIENCE_S:
                return self._fail(f"nothing happens; last: {self._driver.last}")
            if todo and now_s >= next_s:
                next_s = float("inf")
                if self._kill(todo[0], order):
                    todo.pop(0)
                    heard_s = time.monotonic()

    def _kill(self, kill: Kill, order: Order) -> bool:
        pid = victim(kill, self._workers, self._driver.pid)
        if pid is None:
            return False
        if kill.kind in (SUPERVISOR, EXECUTOR) and not self._ran:
            return False  # a Spark that cannot start its tasks fails the job, and that is meant
        gone = {one for one, supervisor in self._workers if pid in (one, *ancestors(supervisor))}
        if not strike(pid, self._driver.pid):
            return False
        at_ns = time.monotonic_ns()
        self._found.by_kind[kill.kind] += 1
        self._open.append((kill.kind, gone, at_ns))
        if kill.kind == DRIVER:
            before, self._workers, self._ran = self._driver, [], False
            self._driver = Driver(self._master, self._folder)
            self._driver.begin(order)
            self._found.left_behind += before.forget()
        return True

    def _note(self, event: dict[str, Any]) -> None:
        """The job has changed: how, who works, and has it recovered?"""
        if event.get("called_off"):
            self._found.called_off += 1
        elif "change" in event:
            self._found.changes[event["change"]] += 1
        if "status" not in event:
            return
        self._workers = [(pid, supervisor) for pid, supervisor in event["workers"]]
        if event["status"] not in ("running", "draining"):
            return
        self._ran = True
        there = {pid for pid, _ in self._workers}
        for kind, gone, at_ns in self._open.copy():
            if event["at_ns"] > at_ns and not gone & there:
                self._open.remove((kind, gone, at_ns))
                ms = (event["at_ns"] - at_ns) / 1e6
                self._found.recovery_ms.setdefault(kind, []).append(ms)
                if ms > SLOW_MS:
                    self._say(f"slow: {ms:.0f} ms after a {kind} was killed")

    def _fail(self, why: str) -> bool:
        self._say(f"FAILED with {self._found.by_kind}: {why}\n{self._driver.errors()}")
        self._found.problems.append(why)
        return False

    def end(self) -> None:
        """End what was started."""
        self._found.left_behind += self._driver.finish()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Kill processes of a job; nothing may be lost.")
    parser.add_argument("--kills", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--changes", action="store_true", help="change the job meanwhile")
    parser.add_argument("--local", action="store_true", help="only on a local Spark: no executors")
    parser.add_argument("--keep", type=Path, help="leave all files in this folder, which is new")
    options = parser.parse_args()
    if options.kills < 1:
        parser.error(f"--kills is {options.kills}; it must be at least 1")
    started_s = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started_s:6.1f} s] {text}", file=sys.stderr, flush=True)

    found = Found()
    with ExitStack() as ends:
        if options.keep is None:
            folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-chaos-")))
        else:
            folder = options.keep
            folder.mkdir(parents=True)
        on_cluster = 0 if options.local else max(1, round(options.kills * CLUSTER_SHARE))
        for (master, shares), count in zip(
            SPARKS.items(), (options.kills - on_cluster, on_cluster), strict=True
        ):
            if not count or found.problems:
                continue
            say(f"{count} kills on {master}, seed {options.seed}")
            todo = kills(count, options.seed, shares)
            chaos = Chaos(master, folder, found, options.seed, say, changes=options.changes)
            try:
                chaos.run(todo)
            finally:
                chaos.end()
    headline = found.headline(options.seed, time.monotonic() - started_s)
    print(json.dumps(headline))
    wrong = found.problems or found.lost or found.duplicated or found.left_behind
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
