"""A running topology: started on a SparkSession, watched and stopped from the driver."""

from __future__ import annotations

import atexit
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tailrace.control.budget import STANDARD, Budget
from tailrace.control.changing import LOST, UNDONE
from tailrace.control.coordinator import Coordinator, LastCheckpoint
from tailrace.control.progress.summary import Summary, summarise
from tailrace.control.progress.traffic import TrafficTable, traffic_of
from tailrace.control.protocol import Settings
from tailrace.control.roster import FAILED
from tailrace.control.seating import GONE, home
from tailrace.graph.expand import Chain
from tailrace.graph.model import Rule
from tailrace.graph.wiring import InstanceId, Wiring
from tailrace.plan.model.machine import Machine
from tailrace.plan.plan import Plan, apply
from tailrace.plan.show.placement import who_runs_where
from tailrace.planner.planning import Planned, machine_of
from tailrace.planner.replanning import Replan, across, present_plan, replanned
from tailrace.routing.homes import Home
from tailrace.routing.pairs import PairCounts, merged
from tailrace.routing.slots import Routes
from tailrace.routing.tables import Tables
from tailrace.runtime.arranging import recast, rescaled, spread_over
from tailrace.runtime.deployment import NOWHERE, Deployment, Layout, changed, deploy
from tailrace.runtime.moves import check as check_moves
from tailrace.runtime.moves import is_source, is_tied
from tailrace.runtime.replayable import why_not
from tailrace.runtime.tabled import homes_of, routes_by, with_tables
from tailrace.spark.adapting import Adapting, Adaptive
from tailrace.spark.changes import Change, ChangeError
from tailrace.spark.checkpoints import Checkpoints, new_folder
from tailrace.spark.choosing import Choosing
from tailrace.spark.cluster import Cluster
from tailrace.spark.feed import Feed, dataframes
from tailrace.spark.launch import Stages
from tailrace.spark.scaling import runs_in, scale, whole_workers
from tailrace.spark.wire import OPEN, Wire
from tailrace.tail.chooser import Chooser
from tailrace.tail.modes import AUTO, changes, parted

_AGAIN_S = 0.05
_RECENT = 100
_NO_CHECKPOINTS = (
    "only a job that makes checkpoints has savepoints: start it with checkpoint=, a folder or URL"
)
_running: weakref.WeakSet[Job]


class JobFailedError(RuntimeError):
    """The job ended because something went wrong; the message says what."""


class Job:
    """The handle of a started topology, in the manner of a Spark streaming query.

    `topology.start(spark)` returns it at once. A job whose sources are bounded ends by itself.
    """

    def __init__(
        self,
        wiring: Wiring,
        placement: tuple[int, ...],
        workers: int,
        coordinator_host: str,
        node: str = "memory",
        plan: Plan | None = None,
        made: Planned | None = None,
        wire: Wire = OPEN,
        *,
        replaced: bool = False,
        budget: Budget = STANDARD,
        checkpoints: Checkpoints | None = None,
        tables: Tables | None = None,
        tail: str = "off",
        chooser: Chooser | None = None,
        report_s: float = Settings.progress_s,
    ) -> None:
        self.id = str(uuid.uuid4()) if checkpoints is None else checkpoints.job
        self._checkpoints = checkpoints
        self.name = wiring.graph.name
        self.plan = plan
        """What it was started by, if a scheduler or a plan was given."""
        self.tables = tables
        """The tables of keys that it was started with, if any."""
        self._made = made
        self._graph = wiring.graph
        first = deploy(wiring.graph, placement)
        self._first = first if tables is None else with_tables(first, tables)
        self._first_layout = self._first.layout
        self._deployed = self._first_layout, self._first
        self._tail = tail
        self._started = time.monotonic()
        self._over = threading.Event()
        self._feeds: list[Feed] = []
        self._stages: Stages | None = None  # and the cluster that they run on, once submitted
        self._cluster: Cluster | None = None
        self._scaling = threading.Lock()
        self._adapting: Adapting | None = None
        self._choosing = Choosing(self, chooser or Chooser(), report_s)
        wanted = tuple(place.node for place in plan.places) if plan else ()
        self._recent: deque[Summary] = deque(maxlen=_RECENT)
        self._coordinator = Coordinator(
            workers,
            coordinator_host,
            self._stop_feeds,
            wanted,
            node,
            replaced=replaced,
            on_reports=self._note_progress,
            tls=wire.tls,
            ports=wire.ports,
            recover=checkpoints is not None,
            budget=budget,
            layout=self._first_layout,
        )
        self._feeds = [
            Feed(name, source, f"{self.id}-{number}", self._coordinator, wiring, placement)
            for number, (name, source) in enumerate(dataframes(wiring.graph))
        ]
        _running.add(self)

    @property
    def status(self) -> str:
        """One of "starting", "running", "recovering", "draining", "stopped", "failed"."""
        return self._coordinator.roster.phase

    @property
    def placement(self) -> tuple[int, ...]:
        """The worker of each instance. By a plan for several nodes, once the workers have met."""
        present = self._present
        places = tuple(present.workers[instance] for instance in present.wiring.ids)
        return self._coordinator.roster.seated(places)

    @property
    def deployment(self) -> Deployment:
        """Who runs where and owns which keys now, by ranks."""
        seats = self._coordinator.roster.seats
        layout = self._layout
        return (layout.seated(seats) if seats else layout).of(self._graph)

    @property
    def _layout(self) -> Layout:
        changing = self._coordinator.roster.changing
        assert changing is not None
        return changing.layout

    @property
    def _present(self) -> Deployment:
        """Who runs where and owns which keys now, by places."""
        return self._deployment_of(self._layout)

    def _deployment_of(self, layout: Layout) -> Deployment:
        """Made once for each layout."""
        known, deployment = self._deployed
        if layout is not known:
            deployment = layout.of(self._graph)
            self._deployed = layout, deployment
        return deployment

    @property
    def _wiring(self) -> Wiring:
        return self._present.wiring

    @property
    def chains(self) -> tuple[Chain, ...]:
        """Which operators run fused, and the numbers of their instances."""
        return self._wiring.chains

    @property
    def is_active(self) -> bool:
        """Whether it has not ended yet."""
        return not self._over.is_set()

    @property
    def last_progress(self) -> Summary:
        """What the job has done so far, as its workers last told (about every half second)."""
        coordinator = self._coordinator
        return summarise(coordinator.roster, self._wiring, coordinator.clock.clock_ns())

    @property
    def recent_progress(self) -> list[Summary]:
        """What workers have told before, oldest first: the last hundred, about two a second."""
        return list(self._recent)

    @property
    def resumed_epoch(self) -> int:
        """The epoch that it went on from when it was started; 0: it began at the beginning."""
        return self._coordinator.resumed_epoch

    @property
    def last_checkpoint(self) -> LastCheckpoint | None:
        """The newest epoch that it has made: number, when, how long it took, bytes written."""
        return self._coordinator.last_checkpoint

    def _note_progress(self) -> None:
        self._recent.append(self.last_progress)

    @property
    def workers(self) -> list[dict[str, Any]]:
        """Where each worker runs: rank, pid, host, and how it reaches the others.

        Also the pid of the process that starts another one when it is lost; 0: none does.
        """
        roster = self._coordinator.roster
        return [
            {
                "rank": rank,
                "pid": hello.pid,
                "supervisor": hello.supervisor,
                "host": hello.host,
                "ways": roster.ways.get(rank, {}),
            }
            for rank, hello in sorted(roster.hellos.copy().items())
        ]

    def traffic(self) -> TrafficTable:
        """Who has sent how much to whom, and how busy everybody was, as the workers last told."""
        return traffic_of(self._coordinator.roster, self.deployment)

    def key_pairs(self) -> list[PairCounts]:
        """Which keys led to which, by operators, as workers last told (about every 5 s).

        Only a job that was started with `count_pairs=True` counts that; see the guide.
        """
        reports = list(self._coordinator.roster.pairs.values())
        return merged(one for report in reports for one in report.pairs)

    def key_tables(self, *, alpha: float = 1.03) -> Tables:
        """Tables of keys by what was counted, for the workers that there are. Moves nothing.

        What belongs together goes to one worker, or at least to one node; no instance gets more
        than `alpha` times the average, as far as keys allow. Takes seconds for a million keys, in
        a process of its own.
        """
        # Here, for they need numpy, and a job starts sooner without.
        from tailrace.control.partitioning import partition_aside
        from tailrace.routing.deciding import tables_for

        homes, before = self._homes_and_routes()
        return tables_for(self.key_pairs(), homes, before, alpha=alpha, solve=partition_aside)

    def _homes_and_routes(self) -> tuple[dict[str, list[Home]], dict[str, Routes]]:
        """Where instances that are reached by key run, and who owns keys, where that is told."""
        roster = self._coordinator.roster
        nodes = [home(hello, roster.node) for _, hello in sorted(roster.hellos.items())]
        deployment = self.deployment
        routes = {
            deployment.graph.streams[number].target: routes
            for number, routes in deployment.routes.items()
        }
        return homes_of(deployment.wiring, self.placement, nodes), routes

    def replan(
        self,
        scheduler: str = "auto",
        *,
        machine: Machine | Path | str | None = None,
        keep: Collection[str] = (),
    ) -> Replan:
        """A plan by what the job has done so far, and how much faster it should be. Moves nothing.

        It is for the workers that there are. `machine` is where they run: by default what the job
        was started with, or this one, and others like it if they are on several.
        """
        roster = self._coordinator.roster
        if machine is None and self._made is not None:
            machine = self._made.machine
        hardware = machine_of(machine)
        graph = self._wiring.graph
        if GONE in roster.seats:
            raise ValueError(
                f"places {[place for place, rank in enumerate(roster.seats) if rank == GONE]} of"
                " the plan have no worker since some have left; a new plan cannot be made for that"
            )
        # By places, as plans are: with a plan for several nodes ranks are in another order.
        seats = roster.seats or range(roster.workers)
        homes = [home(roster.hellos[rank], roster.node) for rank in seats]
        hardware = across(hardware, homes)
        return replanned(
            graph,
            self._present_plan(homes, hardware),
            hardware,
            self.last_progress,
            self.traffic(),
            scheduler,
            base=self._made.profile if self._made else None,
            keep=keep,
            tied=self._tied(),
        )

    def _present_plan(self, homes: Sequence[Hashable], hardware: Machine) -> Plan:
        changing = self._coordinator.roster.changing
        if self.plan is not None and changing is not None and self._layout is self._first_layout:
            return self.plan
        deployment = self._present
        place_of = [deployment.workers[instance] for instance in deployment.wiring.ids]
        return present_plan(deployment.wiring.graph, place_of, homes, hardware)

    def explain(self) -> str:
        """What runs where, as text; with the ways between workers once they have met."""
        roster = self._coordinator.roster
        text = who_runs_where(self._wiring, self.placement, roster.workers, roster.ways)
        return "\n".join(filter(None, (text, *self._tails(), self.last_progress.clocks)))

    def _tails(self) -> list[str]:
        if self._tail == "off":
            return []
        deployment = deploy(self._wiring.graph, self.placement)
        graph = self._wiring.graph
        sources = [one.name for one in graph.operators if not graph.into(one.name)]
        return [
            f"tail={self._tail!r}, {source}: {why_not(deployment, source) or 'may be sent again'}"
            for source in sources
        ]

    def exception(self) -> JobFailedError | None:
        """Why it failed; None while it has not."""
        roster = self._coordinator.roster
        if roster.phase != FAILED:
            return None
        detail = f"\n\n{roster.traceback}" if roster.traceback else ""
        return JobFailedError(f"{roster.reason}{detail}")

    def await_running(self, timeout_s: float | None = None) -> bool:
        """Wait until all workers are there and its sources start, or until it has ended.

        False when the time is over first.
        """
        return self._coordinator.started.wait(timeout_s)

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; False when the time is over first. Raises if the job failed."""
        ended = self._over.wait(timeout_s)
        error = self.exception()
        if error is not None:
            raise error
        return ended

    def stop(
        self,
        *,
        drain: bool = True,
        timeout_s: float = 30.0,
        savepoint: Path | str | None = None,
    ) -> None:
        """End it: let everything under way run out (`drain`), or at once.

        Returns when no worker is left. What has not drained within `timeout_s` is stopped at once.

        A job that makes checkpoints ends behind a last one instead of draining: windows that are
        open stay open, and the same program started again goes on there. With `savepoint` that
        last epoch is copied into this folder, too.
        """
        if savepoint is not None:
            if self._checkpoints is None:
                raise ValueError(_NO_CHECKPOINTS)
            if not drain:
                raise ValueError(
                    f"drain=False ends the job without a last epoch, so nothing can be copied to"
                    f" {str(savepoint)!r}; leave drain out, or call job.savepoint() first"
                )
            new_folder(savepoint)
        self._coordinator.stop(drain)
        self._await_end(timeout_s)
        if savepoint is not None and self._checkpoints is not None:
            self._checkpoints.copy_last(savepoint)

    def set_tail(self, tail: str, streams: Collection[str] | None = None) -> None:
        """Deal shuffled records in another way from now on: all of them, or of some streams.

        For `tail` see `Topology.start`; streams are named as in `last_progress.streams`. Nothing
        stops for that: workers hear of it within milliseconds. Replay is for all streams or none.
        With "auto" what was found before is on again at once.
        """
        mode, replay = parted(tail)
        if streams is not None and replay != "off":
            raise ValueError(f"tail={tail!r} is for all streams; leave streams= out")
        modes = changes(self._graph, mode, streams)
        if tail == AUTO:
            self._choosing.take(modes, replay=streams is None)
            self._adapt(Adaptive())
        else:
            self._choosing.leave(modes, None if streams is not None else replay)
        if streams is None:
            self._tail = tail

    def _adapt(self, wanted: Adaptive) -> None:
        if self._adapting is None:
            self._adapting = Adapting(self, wanted, self._choosing)

    def apply(self, what: Plan | Tables) -> Change:
        """Have what runs where, or which keys are whose, be another way, while the stream flows.

        A plan may have other places, other numbers of instances, another number of workers and
        other operators fused; for more workers Spark must have task slots. Tables route single
        keys. State moves along: nothing is lost, nothing is processed twice, and each key's records
        stay in order. Returns at once, unless workers have to join or to leave.
        """
        if isinstance(what, Tables):
            return self._change(
                lambda before: changed(before, routes=routes_by(what, before)), "keys by tables"
            )
        if not isinstance(what, Plan):
            raise TypeError(f"a Plan or Tables was expected; this is {type(what).__name__}")
        workers, present = len(what.places), self._coordinator.roster.workers
        graph = apply(what, self._graph)

        def planned(before: Deployment) -> Deployment:  # its places are the job's
            return recast(before, graph, what.place_of)

        self._checked(planned, self._layout)  # what cannot be is refused before anything is done
        if workers > present:
            self.scale_workers(workers, spread=False)
        change = self._change(planned, "instances by a plan")
        if workers < present:
            change.await_done()
            self.scale_workers(workers)
        return change

    def _places(self, workers: int) -> list[int]:
        """The places of so many workers, in the order of their ranks."""
        seats = self._coordinator.roster.seats
        return [seats.index(rank) for rank in range(workers)]

    def rescale(self, numbers: Mapping[str, int] | None = None, /, **more: int) -> Change:
        """Have other numbers of instances, by operator: `job.rescale(count=4)`.

        New ones run in the workers that have fewest; as few keys as can be change their owner.
        """
        wanted = {**(numbers or {}), **more}
        if not wanted:
            raise ValueError("no operator was named; for example job.rescale(count=4)")
        told = ", ".join(f"{name} to {count}" for name, count in wanted.items())
        workers = self._coordinator.roster.workers
        return self._change(
            lambda before: rescaled(before, wanted, self._places(workers)), f"instances of {told}"
        )

    def move(self, places: Mapping[tuple[str, int], int]) -> Change:
        """Have instances, by operator and index, run in other workers, by rank."""
        told = ", ".join(f"{one[0]}[{one[1]}] to worker {rank}" for one, rank in places.items())
        return self._change(lambda before: self._moved(places, before), told)

    def _moved(self, places: Mapping[tuple[str, int], int], before: Deployment) -> Deployment:
        seats = self._coordinator.roster.seats
        moved = {}
        for (operator, index), rank in places.items():
            home = before.wiring.home.get(operator)
            if home is None or not 0 <= index < home.parallelism:
                raise ValueError(f"there is no instance {operator}[{index}]")
            if rank < 0 or rank not in seats:
                raise ValueError(f"there is no worker {rank}; there are {len(seats)}")
            moved[InstanceId(home.operators[0], index)] = seats.index(rank)
        return changed(before, workers=moved)

    def _can_rescale(self, chain: Chain) -> bool:
        graph, checkpoints = self._graph, self._checkpoints is not None
        rules = {stream.grouping.rule for stream in graph.into(chain.operators[0])}
        return not rules & {Rule.PARTIAL_KEY, Rule.FORWARD, Rule.GLOBAL} and not any(
            is_source(self._first, name) or is_tied(graph.operator(name), checkpoints=checkpoints)
            for name in chain.operators
        )

    def _tied(self) -> list[str]:
        """Operators whose instances cannot move."""
        checkpoints = self._checkpoints is not None
        return [one.name for one in self._graph.operators if is_tied(one, checkpoints=checkpoints)]

    def _change(self, wanted: Callable[[Deployment], Deployment], moves: str) -> Change:
        """Have what `wanted` makes of what runs: while the job recovers, of what then runs."""
        number = self._coordinator.change(lambda layout: self._checked(wanted, layout))
        return Change(self._coordinator, number, moves)

    def _checked(self, wanted: Callable[[Deployment], Deployment], layout: Layout) -> Layout:
        """What `wanted` makes of a layout; raises ValueError if the job cannot go there."""
        before = self._deployment_of(layout)
        after = wanted(before)
        check_moves(before, after, checkpoints=self._checkpoints is not None)
        return after.layout

    def scale_workers(self, workers: int, *, timeout_s: float = 60.0, spread: bool = True) -> None:
        """Have so many workers from now on; nothing stops for that.

        Workers that join are started by a further Spark job, which needs task slots, and get their
        share of the instances (not so without `spread`). Workers that leave are those with the
        highest ranks; what runs in them moves to the others first, and their slots are free again.
        Returns when it is done. Raises if it is not within `timeout_s`, or cannot be: then the job
        goes on with the workers that it has.
        """
        if self._stages is None or self._cluster is None:
            raise RuntimeError("the job has not been submitted to Spark")
        with self._scaling:
            present = self._coordinator.roster.workers
            whole_workers(workers)
            if workers < present:
                self._spread(workers, timeout_s)
            fed = [name for name, _ in dataframes(self._wiring.graph)]
            placement = self.placement
            scale(
                self._coordinator,
                self._stages,
                self._cluster,
                workers,
                fed,
                lambda rank: runs_in(self._wiring, placement, rank),
                timeout_s,
            )
            if spread and workers > present:
                self._spread(workers, timeout_s)

    def _spread(self, workers: int, timeout_s: float) -> None:
        """Have instances in these workers only, about as many in each.

        If a worker is lost meanwhile, again, as long as there is time.
        """
        until_s = time.monotonic() + timeout_s

        def spread(before: Deployment) -> Deployment:
            return spread_over(before, self._places(workers), self._tied())

        while True:
            before = self._present
            leaves = not set(before.workers.values()) <= {NOWHERE, *self._places(workers)}
            if workers < self._coordinator.roster.workers and not leaves:
                return
            if spread(before).workers == before.workers:
                return
            try:
                change = self._change(spread, f"instances over {workers} workers")
                if change.await_done(until_s - time.monotonic()):
                    return
            except ChangeError:
                again = change.status == UNDONE or change.error == LOST
                if not again or self._coordinator.roster.over or time.monotonic() >= until_s:
                    raise
                time.sleep(_AGAIN_S)
                continue
            raise TimeoutError(f"instances have not moved within {timeout_s:g} s; they still may")

    def _submit(self, cluster: Cluster, settings: Settings) -> None:
        """Have Spark start the workers."""
        self._cluster = cluster
        self._stages = Stages(cluster, settings, self.id, self.name, self._coordinator, self._end)

    def _await_end(self, timeout_s: float) -> None:
        if not self._over.wait(timeout_s):
            self._coordinator.stop(False)
            self._over.wait()

    def savepoint(self, folder: Path | str, *, timeout_s: float = 60.0) -> int:
        """Copy the state as it is now into a folder of its own, and return the number of its epoch.

        `topology.start(spark, restore=folder)` goes on from there. Only for a job that makes
        checkpoints; it goes on meanwhile.
        """
        if self._checkpoints is None:
            raise ValueError(_NO_CHECKPOINTS)
        return self._checkpoints.savepoint(self._coordinator, folder, timeout_s).epoch

    def _end(self) -> None:
        """Called when no worker is left."""
        if self._adapting is not None:
            self._adapting.stop()
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._over.set()

    def _stop_feeds(self) -> None:
        for feed in self._feeds:
            feed.stop()


_running = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for job in list(_running):
        if job.is_active:
            job.stop(drain=False, timeout_s=5.0)
