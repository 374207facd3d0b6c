"""A job's workers, their supervisors and Spark, simulated around a roster: time is a number.

Messages take their time, and those of one connection keep their order; a process that is killed
says no more, and the end of its connection is noticed behind all that it had said. Everything that
happens follows from a seed.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

from tailrace.control.budget import Budget
from tailrace.control.protocol import (
    Failed,
    Go,
    Hello,
    Joined,
    Leave,
    Members,
    Message,
    Met,
    Open,
    Peers,
    Progress,
    Reached,
    Ready,
    RollBack,
    Stop,
    Suspects,
)
from tailrace.control.roster import ALL, Line, Order, Roster

TICK_S = 0.2


@dataclass
class Process:
    """A worker: what it has heard and does, as far as the coordinator can tell."""

    rank: int
    number: int
    launch: int
    supervisor: int
    life: int
    stage: int = 0
    alive: bool = True
    attempt: int = 0
    members: int = 0
    """How many it knows to take part; with those that it has ways to beside them,"""
    coming: tuple[int, ...] = ()
    """by the numbers of their connections."""
    meeting: bool = False
    opened: bool = False
    running: bool = False
    draining: bool = False
    ended: bool = False
    out: deque[Callable[[], None]] = field(default_factory=deque)
    into: deque[Callable[[], None]] = field(default_factory=deque)


@dataclass
class Task:
    """A Spark task, that is a supervisor."""

    pid: int
    rank: int
    launch: int
    stage: int = 0
    lives: int = 0
    alive: bool = True
    worker: Process | None = None


def _stage(task: Task) -> tuple[int, int]:
    return task.launch, task.stage


class World:
    """See above. Records that fail are those of a rank; a bounded job works for `work_s`."""

    def __init__(self, seed: int, workers: int, budget: Budget, work_s: float | None) -> None:
        self.random = Random(seed)
        self.roster = Roster(workers, recover=True, budget=budget)
        self.work_s = work_s
        self.now_s = 0.0
        self.processes: dict[int, Process] = {}
        self.tasks: list[Task] = []
        self.poisoned: tuple[int, int] | None = None
        """The rank whose record raises whenever it gets there, and how often it still does."""
        self.stage = -1
        self.further: set[int] = set()
        """The numbers of the further stages that run."""
        self.asked: list[int] = []
        """The numbers of the changes of the number of workers that were asked for."""
        self._launched = {0}
        self.history: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._numbers = count(1)
        self._pids = count(1000)
        self._submit(0)
        self.after(TICK_S, self._tick)

    # ---- time ----

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_s + delay_s, next(self._order), what))

    def run(self, until_s: float, done: Callable[[], bool]) -> bool:
        """Let time pass until it is done (True) or so late (False)."""
        while not done():
            if not self._events or self._events[0][0] > until_s:
                return False
            self.now_s, _, what = heapq.heappop(self._events)
            what()
        return True

    def _delay_s(self) -> float:
        slow = self.random.random() < 0.05
        return self.random.uniform(0.05, 3.0) if slow else self.random.uniform(0.0001, 0.005)

    def _queued(self, queue: deque[Callable[[], None]], what: Callable[[], None]) -> None:
        """In order: what was queued first happens first, whatever the delays are."""
        queue.append(what)
        self.after(self._delay_s(), lambda: queue.popleft()())

    # ---- the coordinator ----

    def _tick(self) -> None:
        self.decide(lambda: self.roster.tick(self.now_s))
        roster = self.roster
        if roster.abandoned:
            self._end_stage("cancelled")
        due_s = roster.due_s
        pause_s = TICK_S if due_s is None else min(max(due_s - self.now_s, 0.001), TICK_S)
        if not roster.over:
            self.after(pause_s, self._tick)

    def decide(self, decision: Callable[[], list[Order]]) -> None:
        self.roster.now_s = self.now_s
        phase, attempt = self.roster.phase, self.roster.attempt
        for to, message in decision():
            if isinstance(message, Go):
                self._check_go()
            if to is ALL:
                meant = list(self.processes)
            else:
                meant = [to.number if isinstance(to, Line) else self.roster.speakers.get(to, -1)]
            for number in meant:
                process = self.processes.get(number)
                if process is not None:
                    self._queued(process.into, partial(self._hear, process, message))
        if (self.roster.phase, self.roster.attempt) != (phase, attempt):
            self.history.append(f"{self.now_s:.3f} {self.roster.phase} {self.roster.attempt}")

    def _check_go(self) -> None:
        """When workers start, they are one of each rank, and nobody else is at work.

        But for who leaves, in which nothing runs.
        """
        departure = self.roster.joining.departure
        leaving = departure.lines if departure is not None else {}
        known = self.processes.values()
        living = [one for one in known if one.alive and one.number not in leaving]
        assert not any(one.running for one in living if one.attempt != self.roster.attempt)

    # ---- Spark ----

    def _submit(self, launch: int) -> None:
        self.stage = launch
        self.further.clear()
        self._start_tasks(range(self.roster.workers), launch, 0)

    def _start_tasks(self, ranks: range, launch: int, stage: int) -> None:
        for rank in ranks:
            task = Task(next(self._pids), rank, launch, stage)
            self.tasks.append(task)
            self.after(self.random.uniform(0.05, 0.5), partial(self._fork, task))

    def grow(self, more: int, within_s: float = 60.0) -> int:
        """Ask for more workers, of a further stage: its number. Raises if it cannot be now."""
        self.roster.now_s = self.now_s
        number = self.roster.joining.grow(more, within_s)
        self.further.add(number)
        workers = self.roster.workers
        self._start_tasks(range(workers, workers + more), self.roster.launch, number)
        return number

    def _end_stage(self, why: str, stage: int = 0) -> None:
        """Spark has lost a task, or was asked to end them: it raises, and kills a moment later."""
        launch = self.stage
        if (stage and stage not in self.further) or (not stage and launch < 0):
            return
        if stage:
            self.further.discard(stage)
        else:
            self.stage = -1
        tasks = [task for task in self.tasks if (task.launch, task.stage) == (launch, stage)]
        self.after(self.random.uniform(0.02, 0.2), partial(self._raised, why, launch, stage))
        self.after(self.random.uniform(2.0, 4.0), partial(self._kill_tasks, tasks))

    def _raised(self, why: str, launch: int, stage: int) -> None:
        why = f"Spark ended the workers: {why}"
        roster = self.roster
        if stage:
            self.decide(lambda: roster.joining.stage_ended(stage, launch, why, ""))
        else:
            self.decide(lambda: roster.relaunch(why, launch=launch))
        if roster.over or roster.launch in self._launched:
            return
        # Whichever of its stages was lost: all are over, and one follows.
        self._launched.add(roster.launch)
        self.stage = -1
        self.further.clear()
        before = [task for task in self.tasks if task.launch == launch]
        self.after(self.random.uniform(2.0, 4.0), partial(self._kill_tasks, before))
        wait_s = max(roster.recovery.resume_s - self.now_s, 0.0)
        following = roster.launch
        self.after(wait_s, lambda: None if roster.over else self._submit(following))

    def kill_task(self, task: Task) -> None:
        """The supervisor, and with it the worker."""
        if not task.alive:
            return
        task.alive = False
        if task.worker is not None:
            self._gone(task.worker)
        if task.launch == self.stage:
            self._end_stage("Python worker exited unexpectedly", task.stage)

    def _kill_tasks(self, tasks: list[Task]) -> None:
        for task in tasks:
            self.kill_task(task)

    # ---- workers ----

    def _fork(self, task: Task) -> None:
        if not task.alive:
            return
        number = next(self._numbers)
        process = Process(task.rank, number, task.launch, task.pid, task.lives, task.stage)
        task.lives += 1
        task.worker = self.processes[number] = process
        hello = Hello(
            task.rank,
            number,
            "host",
            "executor",
            f"ring {number}",
            ("host", number),
            launch=task.launch,
            supervisor=task.pid,
            life=process.life,
            stage=task.stage,
        )
        self._say(process, hello)

    def _say(self, process: Process, message: Message) -> None:
        if process.alive:
            number = process.number
            self._queued(
                process.out, lambda: self.decide(lambda: self.roster.hear(message, number))
            )

    def kill(self, process: Process) -> None:
        """The worker alone: its supervisor forks another."""
        if process.alive:
            self._gone(process)
            self._ended(process, again=True)

    def _gone(self, process: Process, silent: bool = False) -> None:
        if not process.alive:
            return
        process.alive = process.running = False

        def noticed() -> None:
            self.processes.pop(process.number)
            self.decide(lambda: self.roster.lost(process.rank, self.now_s, silent, process.number))

        self._queued(process.out, noticed)

    def _ended(self, process: Process, again: bool) -> None:
        task = next(one for one in self.tasks if one.pid == process.supervisor)
        if again:
            self.after(0.014, lambda: self._fork(task))
        else:
            task.alive = False  # it has returned
            stage = [one for one in self.tasks if (one.launch, one.stage) == _stage(task)]
            if task.stage in self.further and not any(one.alive for one in stage):
                self.further.discard(task.stage)
                told = "the workers ended before the job did"
                self.after(0.01, partial(self._raised, told, task.launch, task.stage))

    def _hear(self, process: Process, message: Message) -> None:
        if not process.alive:
            return
        match message:
            case RollBack():
                self._halt(process, message.attempt)
            case Peers():
                if message.attempt != process.attempt:
                    self._halt(process, message.attempt)
                process.meeting = True
                process.members = len(message.hellos)
                breaks = self.roster.recovery.ran and self.random.random() < 0.02
                if breaks:  # the connection to a peer, at once
                    peer = (process.rank + 1) % self.roster.workers
                    self._say(process, Suspects(process.rank, peer, "reset", message.attempt))
                else:
                    self._later(
                        process, lambda: self._say(process, Met(process.rank, process.attempt))
                    )
            case Joined():
                process.coming = tuple(hello.pid for hello in message.hellos)
                self._reaches(process, message.round)
            case Members():
                process.members, process.coming = message.workers, ()
                self._say(process, Reached(process.rank, message.round, attempt=process.attempt))
            case Leave():
                self._check_leaving(process)
                self._gone(process)
                self._ended(process, again=False)
            case Open() if process.meeting:
                process.opened = True
                ready = Ready(process.rank, {}, process.attempt)
                self._later(process, lambda: self._say(process, ready))
            case Go() if process.meeting and process.opened:
                process.running = True
                self._work(process)
            case Stop(drain=True):
                process.draining = True
            case Stop():
                self._gone(process)
                self._ended(process, again=False)

    def _reaches(self, process: Process, round_: int) -> None:
        """After a while there are ways to those that join, unless one of them is gone by then."""

        def tell() -> None:
            lost = any(number not in self.processes for number in process.coming)
            trouble = "closed" if lost else ""
            told = Reached(process.rank, round_, {}, trouble, process.attempt)
            self._say(process, told)

        self._later(process, tell)

    def _check_leaving(self, process: Process) -> None:
        """Nobody that goes on in this attempt has a way to who leaves."""
        for number in self.roster.speakers.values():
            one = self.processes.get(number)
            if one is not None and one.running and one.attempt == self.roster.attempt:
                assert one.members <= process.rank

    def _halt(self, process: Process, attempt: int) -> None:
        failing = process.attempt < 0
        process.attempt = attempt
        process.coming = ()
        process.meeting = process.opened = process.running = process.ended = False
        if failing:  # it has waited for this
            self.kill(process)

    def _later(self, process: Process, what: Callable[[], None]) -> None:
        attempt = process.attempt

        def if_still_wanted() -> None:
            if process.alive and process.attempt == attempt:
                what()

        self.after(self.random.uniform(0.001, 0.02), if_still_wanted)

    def _work(self, process: Process) -> None:
        begun_s, attempt = self.now_s, process.attempt

        def step() -> None:
            if not process.running or process.attempt != attempt:
                return
            if self.poisoned is not None and self.poisoned[0] == process.rank:
                rank, times = self.poisoned
                self.poisoned = (rank, times - 1) if times > 1 else None
                self.fail(process, "record 77")
                return
            done = self.work_s is not None and self.now_s - begun_s >= self.work_s
            process.ended = process.draining or done
            report = Progress(process.rank, 0, ended=process.ended, attempt=attempt)
            self._say(process, report)
            if not process.ended:
                self.after(0.25, step)

        self.after(self.random.uniform(0.01, 0.25), step)

    def fail(self, process: Process, record: str) -> None:
        """User code raises: the worker says so, waits to be let go, and ends."""
        if process.alive and process.running:
            process.running = False
            process.attempt = -1
            text = f"operator 'step' failed on {record}"
            self._say(process, Failed(process.rank, text, "Traceback", "step", record))
            self.after(1.0, lambda: self.kill(process))

    def silence(self, process: Process) -> None:
        """Its host is cut off: the connection ends late, and the supervisor does not matter."""
        if process.alive:
            process.alive = process.running = False
            task = next(one for one in self.tasks if one.pid == process.supervisor)
            task.alive = False

            def noticed() -> None:
                self.processes.pop(process.number)
                self.decide(
                    lambda: self.roster.lost(process.rank, self.now_s, True, process.number)
                )

            self.after(5.0, noticed)

    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.roster.over

    def is_over_or_at_work(self) -> bool:
        """Either of the two."""
        return self.is_over() or self.is_at_work()

    def is_settled(self) -> bool:
        """Whether the job runs, and nobody is on the way in or out."""
        joining = self.roster.joining
        return self.is_at_work() and joining.growth is None and joining.departure is None

    def is_at_work(self) -> bool:
        """Whether the job runs, and all its workers do."""
        roster = self.roster
        speakers = [self.processes.get(number) for number in roster.speakers.values()]
        return (
            roster.phase == "running"
            and len(speakers) == roster.workers
            and all(one is not None and one.running for one in speakers)
            and all(one.members == roster.workers for one in speakers if one is not None)
        )
