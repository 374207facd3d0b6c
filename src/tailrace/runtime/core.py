"""A worker without I/O: its instances, their queues, flow control and timers.

Messages and time come in through `deliver`, `credit` and the clock; messages go out through a
`Post`, which the owner provides. So the same core runs in a Spark worker, in the test kit under
virtual time, and in simulations with seeds.

One round polls the sources, takes what is queued, and then lets go of everything gathered: under
load a round has much to do and its jumbos are large, at low rate a jumbo is one record that has
waited for nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from time import time_ns
from typing import Any

from tailrace.graph.model import Operator
from tailrace.runtime.board import Boards, origin_of
from tailrace.runtime.building import Site
from tailrace.runtime.chains import Chain
from tailrace.runtime.counting import Counting
from tailrace.runtime.cuts import Cuts
from tailrace.runtime.deployment import Deployment
from tailrace.runtime.inlet import Inlet, deliver
from tailrace.runtime.instance import Context, Instance
from tailrace.runtime.limits import DEFAULT_LIMITS, Limits
from tailrace.runtime.loads import Loads
from tailrace.runtime.markers import Watermark
from tailrace.runtime.moving import Moving, StateMessage
from tailrace.runtime.outgoing import Item, Outgoing, Post
from tailrace.runtime.pair_counting import SKETCH_BYTES, PairCounting
from tailrace.runtime.reading import SourceStep
from tailrace.runtime.replayable import stateless
from tailrace.runtime.replaying import Policy, Replaying
from tailrace.runtime.sink import SinkStep
from tailrace.runtime.state import GoingOn, Stateful
from tailrace.runtime.step import Fail, OperatorFailed, Put, Step, call
from tailrace.tail.modes import Tail
from tailrace.transport import jumbo
from tailrace.transport.peer import Load

__all__ = ["DEFAULT_LIMITS", "Core", "Limits"]

jumbo.plain(Watermark, "time_ns", "emitted_ns")

_FIRST_APPETITE = 256
_ROUND_NS = 1_000_000
"""About how long a round under load should take: long enough to be worth its own work."""
_WIDTH_NS = 25_000
"""And so much more for each instance and receiver that a round may have to look at."""
_LEAST_SHARE = 64
"""However long rounds take, one in so many records may come from a source."""
_FEW = 64
"""So few records of a source are let go of at once: a round then goes on with those that stay."""
_SLICE_NS = 100_000
"""How long what was cut may be worked on between two rounds."""


def nothing_kept(operator: str, index: int) -> GoingOn | None:
    """What steps go on from at the beginning."""
    return None


def _given_by_others(operator: str, index: int) -> GoingOn:
    """What steps that come later begin with: all that they get is given by others."""
    return GoingOn(0)


class Core:
    """See above. All methods are called from one thread, but for `wake` of a context."""

    def __init__(
        self,
        rank: int,
        deployment: Deployment,
        clock_ns: Callable[[], int],
        post: Post,
        wake: Callable[[], None] = lambda: None,
        limits: Limits = DEFAULT_LIMITS,
        wall_ns: Callable[[], int] = time_ns,
        *,
        origins: bool = False,
        epoch: int | None = None,
        going_on: Callable[[str, int], GoingOn | None] = nothing_kept,
        before: Core | None = None,
        is_near: Callable[[int], bool] = lambda peer: True,
        boards: Boards | None = None,
        shares_memory: Callable[[int], bool] = lambda rank: True,
        loads: Loads | None = None,
    ) -> None:
        """With `origins`, every batch of a source is numbered, and its records keep the number.

        With an epoch it makes checkpoints, and goes on from that one (0: the beginning): each copy
        of an operator from what `going_on(operator, index)` says; or from where it was in another
        core, which has retired, and had that epoch committed as its newest. Without an epoch it
        may still go on from something, and makes no checkpoints.

        `is_near` says which other workers are of this node.
        With boards, runs of sources may be tracked and sent again (`set_replay`), if all workers
        that they go through share memory with this one. `loads` is how much work the workers of
        this node have.
        """
        self.rank = rank
        self.limits = limits
        self._clock_ns = clock_ns
        self._wall_ns = wall_ns
        self._post = post
        self._wake = wake
        self._origins = origins
        self._batches = count(1)
        self._appetite = min(_FIRST_APPETITE, limits.poll_records)  # for what a source has
        self._timer_ids = count()
        self._closed = False
        self._shut: dict[int, Step] = {}
        self._paused = False
        self._woken: list[tuple[Instance, str]] = []
        self._due: list[Inlet] = []
        self._epoch = epoch
        self._going_on = going_on
        self._known: dict[tuple[str, int], GoingOn | None] = {}
        self._before = before
        self.cuts: Cuts | None = None
        """Where it is cut into epochs, if it makes checkpoints."""
        self.pairs: PairCounting | None = None
        """The pairs of keys that are counted, if any are; see `count_pairs`."""
        self.stopping = False
        """Whether its sources are to end where they are."""
        self._coming_epoch = 0
        self.change = 0
        """The number of the last change that is done."""
        self.moving: Moving | None = None
        """The change of its deployment that is prepared or in progress, if one is."""
        self._boards = boards
        self.replaying: Replaying | None = None
        """The runs of its sources, if there are boards."""
        self._tracks: Replaying | None = None  # the same, while runs are tracked
        # Most of many instances have nothing to do, and a turn should not cost more for them.
        self._others: list[Instance] = []  # all that are no sources
        self._filled: list[int] = []  # whose queues hold something, by place
        self._watched: set[int] = set()  # that end, or have timers
        if boards is not None:
            self.replaying = Replaying(boards, None, clock_ns, shares_memory)
        self.site = Site(rank, deployment, clock_ns, limits, self._context, is_near, loads)
        self.counting = Counting(self.site, post.size)
        self._outgoing = Outgoing(self.site, self.counting, post, clock_ns)
        self.changed()
        if epoch is not None or going_on is not nothing_kept:
            try:
                self._go_on(epoch)
            except BaseException:
                with suppress(OperatorFailed):
                    self.close()
                raise
        self._before = None
        self._known.clear()
        self._going_on = _given_by_others

    def _go_on(self, epoch: int | None) -> None:
        """Have all steps be where they were at the end of an epoch."""
        steps = [
            (name, instance.id.index, step)
            for instance in self.instances
            for name, step in instance.steps
        ]
        before = {} if self._before is None else self._before.steps_at_commit()
        chains: dict[tuple[str, int], Chain] = {}
        if self._before is not None and self._before.cuts is not None:
            chains |= self._before.cuts.chains
        # Sinks also commit what others have prepared who are gone.
        told = {
            (name, index): self._told(name, index)
            for name, index, step in steps
            if isinstance(step, SinkStep) or (name, index) not in before
        }
        chains |= {where: one.chain for where, one in told.items() if one is not None}
        if epoch is not None:
            self.cuts = Cuts(epoch, self.instances, chains, self._before_cut, self._pause)
        for name, index, step in steps:
            other, going_on = before.get((name, index)), told.get((name, index))
            if isinstance(other, Stateful) and isinstance(step, Stateful):
                call(name, "restore", step.take_over, other)
            elif going_on is not None:
                call(name, "restore", step.go_on, going_on)

    def _told(self, operator: str, index: int) -> GoingOn | None:
        """What a step goes on from; asked once, for it may have to be read."""
        if (operator, index) not in self._known:
            self._known[operator, index] = self._going_on(operator, index)
        return self._known[operator, index]

    def steps(self) -> dict[tuple[str, int], Step]:
        """All steps that run here, by operator and index."""
        return {
            (name, instance.id.index): step
            for instance in self.instances
            for name, step in instance.steps
        }

    def steps_at_commit(self) -> dict[tuple[str, int], Step]:
        """Those that were here when the last epoch was committed; others have nothing of it."""
        cuts = self.cuts
        return {
            where: step
            for where, step in self.steps().items()
            if not isinstance(step, Stateful) or (cuts is not None and cuts.was_here(where))
        }

    # ---- from one deployment to another ----

    def prepare(self, number: int, deployment: Deployment, epoch: int = 0) -> None:
        """Have what another deployment needs here; see `Moving`. Raises if that cannot be.

        With checkpoints it comes with an epoch, from which on new instances write.
        """
        if self.moving is not None:
            raise RuntimeError(f"change {number} begins before {self.moving.number} is over")
        self._coming_epoch = epoch
        self.moving = moving = Moving(self, number, deployment)
        self._closed = False  # if all had ended here, others come
        if self.cuts is not None:
            self.cuts.moving = moving
        if self.replaying is not None:
            self.replaying.pause(True)

    def call_off(self) -> None:
        """What was prepared will not be needed."""
        if self.moving is not None and not self.moving.begun:
            moving, self.moving = self.moving, None
            if self.cuts is not None:
                self.cuts.moving = None
            moving.abandon()
            self._settled()

    def switch(self) -> None:
        """Go over to it. In a job with checkpoints `begin_epoch` says so."""
        if self.moving is not None:
            self.moving.begin()

    def receive_state(self, sender: int, message: StateMessage) -> None:
        """Another worker says something about keys that move."""
        if self.moving is not None and self.moving.number == message.change:
            self.moving.receive(sender, message)

    def send_state(self, peer: int, message: StateMessage) -> bool:
        """See `Post.state`."""
        return self._post.state(peer, message)

    def move(self, budget_ns: int = _SLICE_NS) -> bool:
        """Work on a change for about so long; whether there was anything to do."""
        return self.moving is not None and self.moving.work(budget_ns, self._clock_ns)

    def moved(self) -> Moving | None:
        """The change that has come to its end here, once."""
        moving = self.moving
        if moving is None or not moving.done:
            return None
        self.moving, self.change = None, moving.number
        self.site.deployment = moving.moves.after
        if self.cuts is not None:
            self.cuts.moving = None
        self._settled()
        return moving

    def _settled(self) -> None:
        """No change is in progress any more."""
        self.changed()
        for instance in self.instances:
            if instance.source is not None:
                instance.source.settled = True
        if self.replaying is not None:
            self.replaying.pause(False)

    def changed(self) -> None:
        """Instances, links or lanes are others now."""
        site = self.site
        self.instances = list(site.instances.values())
        self.sources = [(one, one.source) for one in self.instances if one.source is not None]
        self._placed = False
        width = len(self.instances) + len(site.lanes)
        self._round_ns = _ROUND_NS + _WIDTH_NS * max(width - 16, 0)
        self._outgoing.exchanges = list(site.exchanges.values())
        if self.pairs is not None:
            self.pairs.attach()
        if self.replaying is not None:
            for one in self.instances:
                one.queue.boards = self._boards
                one.queue.leaves = not stateless(site.deployment.graph, one.chain)
            sources = [one.id.operator for one, _ in self.sources]
            self.replaying.deployed(site.deployment, sources)

    def _place(self) -> None:
        """Give instances their places among those that a turn may have to look at.

        Not while a round does that, which may be what changes them.
        """
        self._placed = True
        self._others = [one for one in self.instances if one.source is None]
        self._filled, self._watched = [], set()
        for place, one in enumerate(self._others):
            one.queue.note_in(self._filled, place)
            one.watch = partial(self._watched.add, place)
            one.watch()

    @property
    def deployment(self) -> Deployment:
        """What it runs its part of."""
        return self.site.deployment

    def instance(self, operator: str, index: int = 0) -> Instance:
        """One of the instances that run here, by an operator of its chain."""
        for instance in self.instances:
            if operator in instance.chain.operators and instance.id.index == index:
                return instance
        raise KeyError(f"no instance {operator}[{index}] runs in worker {self.rank}")

    def _context(
        self, instance: Instance, operator: Operator, put: Callable[[str], Put], fail: Fail
    ) -> Context:
        # Both may be called before the step is there, from its `open`: it is looked up when due.
        def wake() -> None:
            self._woken.append((instance, operator.name))
            self._wake()

        def set_timer(at_ns: int, tag: Any) -> None:
            timer = (at_ns, next(self._timer_ids), operator.name, tag)
            heapq.heappush(instance.timers, timer)
            instance.watch()

        def emit_as(emitted_ns: int, origin: int = 0) -> None:
            instance.stamp.emitted_ns, instance.stamp.origin = emitted_ns, origin

        where = operator.name, instance.id.index
        before = self._before.steps_at_commit().get(where) if self._before is not None else None
        return Context(
            operator=operator.name,
            index=instance.id.index,
            parallelism=operator.parallelism,
            clock_ns=self._clock_ns,
            put=put,
            set_timer=set_timer,
            advance=lambda watermark: instance.advance(watermark, operator.name),
            wake=wake,
            counts=instance.counts[operator.name],
            fail=fail,
            emitted_ns=lambda: instance.emitted_ns,
            origin=lambda: instance.stamp.origin,
            emit_as=emit_as,
            wall_ns=self._wall_ns,
            epoch=self._epoch if self.cuts is None else self._coming_epoch or self.cuts.epoch + 1,
            going_on=lambda: self._told(*where),
            before=before,
        )

    def count_pairs(
        self, on: bool = True, size_bytes: int = SKETCH_BYTES, every: int | None = None
    ) -> None:
        """Count which keys lead to which, from now on and anew; or count no more.

        See `PairCounting`. What was counted is forgotten whenever the deployment changes.
        """
        if self.pairs is not None:
            self.pairs.stop()
        self.pairs = PairCounting(self.site, self._clock_ns, size_bytes, every) if on else None

    def set_replay(self, policy: Policy | None) -> None:
        """Send runs again from now on that this policy takes for late; None: none."""
        if self.replaying is None:
            raise RuntimeError("nothing can be sent again by a core without boards")
        self.replaying.policy = policy
        if policy is None:
            self.replaying.forget()
        self._tracks = None if policy is None else self.replaying

    # ---- what comes in ----

    def deliver(
        self,
        sender: int,
        parcels: list[tuple[int, list[Item]]],
        sent_ns: int,
        size_bytes: int = 0,
    ) -> None:
        """Queue what has arrived from a worker; all of it together was of that size."""
        deliver(self.site.inlets, sender, parcels, sent_ns, self._clock_ns(), size_bytes)

    def credit(self, gate: int, taken: int, window: int, load: Load = (0, 0, 0, 0, 0)) -> None:
        """The receiver behind a gate has taken that many records of ours since the start."""
        lane = self.site.lanes.get(gate)
        if lane is not None:  # else that link has ended
            lane.credit(taken, window, load)

    def stop_sources(self) -> None:
        """Let every source end where it is; the job then drains and ends by itself."""
        self.stopping = True
        for instance in self.instances:
            for _, step in instance.steps:
                if isinstance(step, SourceStep):
                    step.stop()

    # ---- epochs ----

    def begin_epoch(self, epoch: int, *, last: bool = False, change: int = 0) -> None:
        """Cut the sources here; behind the job's last epoch they give nothing any more.

        The marker may have come before this word, and says the same.
        With the number of a change, which is prepared, the deployment changes behind the cut.
        """
        assert self.cuts is not None, "it makes no checkpoints"
        self.cuts.begin(epoch, change, last)

    def _pause(self) -> None:
        """What would be done from now on is done by who goes on from the last epoch."""
        self._paused = True

    def encode(self, budget_ns: int = _SLICE_NS) -> bool:
        """Work on what was cut for about so long; whether there was anything to do."""
        return self.cuts is not None and self.cuts.encode(budget_ns, self._clock_ns)

    def retire(self) -> None:
        """Close, so that another core can take over what is here."""
        self._closed = True
        self._close_moving()
        self.site.close(lambda step: step.retire)

    def discard(self) -> None:
        """It has retired, and nobody takes over."""
        self.site.close(lambda step: step.discard)

    # ---- the round ----

    def round(self, poll: bool = True) -> bool:
        """Do what can be done now. False: there was nothing, and nothing changes by itself.

        Without `poll` sources are left for a later round.
        """
        started_ns = self._clock_ns()
        appetite = self._appetite
        polled = taken = 0  # the most records of a source, and all from queues
        progress = bool(self._woken) and self._rouse()
        fresh = False
        for instance, source in self.sources:
            if instance.ended:
                continue
            if instance.timers:
                progress |= self._fire(instance)
            if instance.ending:
                instance.finish()
                progress |= instance.ended
            elif poll and not (instance.congested or instance.still or self._paused):
                found = self._poll(instance, source, appetite)
                polled = max(polled, found)
                progress |= found > 0 or instance.ending
                fresh |= 0 < found <= _FEW
        if fresh:
            progress |= self._outgoing.flush()
        if not self._placed:
            self._place()
        filled, watched, others = self._filled, self._watched, self._others
        places = sorted(watched.union(filled)) if filled or watched else ()
        filled.clear()
        for place in places:
            instance = others[place]
            queue, timers = instance.queue, instance.timers
            if timers:
                progress |= self._fire(instance)
            if instance.ending:
                if not instance.ended:
                    instance.finish()
                    progress |= instance.ended
            elif queue.order and not instance.congested:
                taken += self._take(instance)
                progress = True
            queue.noted = bool(queue.order) and not instance.ended
            if queue.noted:
                filled.append(place)
            if instance.ended or not (timers or instance.ending):
                watched.discard(place)
        if self.cuts is not None and self.cuts.waiting:
            self.cuts.look()
        if self.moving is not None:
            progress |= self.moving.look()
        if self._tracks is not None:
            progress |= self._tracks.look(started_ns, progress)
        progress |= self._outgoing.flush()
        if polled:
            self._adapt(polled, taken, self._clock_ns() - started_ns)
        return progress

    def _adapt(self, polled: int, taken: int, took_ns: int) -> None:
        """Take more from sources when a round was quickly done, and less when it took long.

        What other workers send may be what takes long: a source has its share beside it. A round
        with one record that took long says nothing: the system may have stopped us.
        """
        appetite, share = self._appetite, taken // _LEAST_SHARE
        if took_ns < self._round_ns or appetite < share:
            if polled >= appetite:
                self._appetite = min(2 * appetite, self.limits.poll_records)
        elif took_ns > 2 * self._round_ns and polled > 1 and appetite // 2 >= share:
            self._appetite = max(appetite // 2, 1)

    def _take(self, instance: Instance) -> int:
        """Process what is queued, and return how many records it held."""
        limits, due = self.limits, self._due
        taken: int = instance.queue.take(
            instance,
            instance.stamp,
            self._clock_ns,
            limits.round_messages,
            due,
            limits.window_bytes // 4,
            min(limits.gathered_records, instance.room),
        )
        if due:
            self._report_taken()
        return taken

    def _report_taken(self) -> None:
        """Tell senders how far receivers here are."""
        for inlet in self._due:
            inlet.report()
            credit = inlet.gate, inlet.taken, inlet.window, inlet.load
            if inlet.peer == self.rank:
                self.credit(*credit)
            else:
                self._post.credit(inlet.peer, *credit)
        self._due.clear()

    def set_tail(self, stream: int, mode: Tail) -> None:
        """Deal the records of a shuffled stream in another way, from now on.

        All workers of a stream are told, in any order; nothing is lost by that, but until its
        receivers have heard of it, they may report late, and until its senders have, too often.
        """
        self._due += self.site.set_tail(stream, mode)
        self._report_taken()

    def _poll(self, instance: Instance, source: SourceStep, most: int) -> int:
        """Process what a source has, and return how many records that were."""
        name = instance.steps[0][0]
        started_ns, instance.timing.inner_ns = self._clock_ns(), 0
        records = call(name, "poll", source.poll, min(most, instance.room))
        if records is None and not instance.kept_open:
            instance.finish()
        if not records:
            return 0
        stamp = instance.stamp
        stamp.emitted_ns, stamp.now_ns = source.emitted_ns, started_ns
        if self._origins:
            stamp.origin = origin_of(next(self._batches), self.rank)
        counts = instance.counts[name]
        found = len(records)
        counts.records_in += found
        if self._tracks is None or not self._tracks.begin(instance, source, records):
            source.put(records)
        counts.execute_ns += self._clock_ns() - started_ns - instance.timing.inner_ns
        return found

    def _fire(self, instance: Instance) -> bool:
        """Call the timers that are due, if that can be. What they set waits for the next round."""
        if instance.full or instance.still or instance.ending or self._paused:
            return False
        now_ns, before = self._clock_ns(), next(self._timer_ids)
        timers, fired = instance.timers, False
        while timers and timers[0][0] <= now_ns and timers[0][1] < before and not instance.full:
            at_ns, _, name, tag = heapq.heappop(timers)
            instance.stamp.emitted_ns, instance.stamp.now_ns = at_ns, now_ns
            instance.stamp.origin = 0
            call(name, "timer", instance.step(name).on_timer, at_ns, tag)
            fired = True
        return fired

    def _rouse(self) -> bool:
        # Another thread may append meanwhile (`wake`): take one by one, so that none is lost.
        woken = [self._woken.pop() for _ in range(len(self._woken))]
        for instance, name in woken:
            if not instance.ended:
                call(name, "wake", instance.step(name).on_wake)
        return bool(woken)

    def before_cut_of(self, group: list[Instance]) -> None:
        """Put out all that belongs before a cut of these instances."""
        for instance in group:
            self._before_cut(instance)

    def _before_cut(self, instance: Instance) -> None:
        """What was emitted in an epoch is not sent again in the next."""
        if self.replaying is not None and instance.source is not None:
            self.replaying.forget()
        self._outgoing.refuse_unsendable(instance)

    # ---- what the owner asks ----

    @property
    def ended(self) -> bool:
        """Whether all instances have ended and everything has been sent."""
        if self.moving is not None:
            return False
        for instance in self.instances:  # asked in every turn, so without a generator
            if not instance.ended:
                return False
        return not any(lane.items for lane in self.site.lanes.values())

    @property
    def backlog(self) -> bool:
        """Whether a queue holds something to do at once."""
        if not self._placed:
            self._place()
        for place in self._filled:  # noqa: SIM110 (as in `ended`)
            if not self._others[place].congested:
                return True
        return False

    @property
    def outstanding(self) -> bool:
        """Whether a step waits for something outside this core, and will be woken by it."""
        return any(step.outstanding for one in self.instances for _, step in one.steps)

    def next_due_ns(self) -> int | None:
        """When there is something to do by time alone: a timer or a source; None: never."""
        due = [exchange.due_ns() for exchange in self._outgoing.exchanges if exchange.pending]
        if self._tracks is not None and (late_ns := self._tracks.due_ns()) is not None:
            due.append(late_ns)
        if self._paused:
            return min(due, default=None)
        if not self._placed:
            self._place()
        for place in self._watched:
            due += self._next_timer(self._others[place])
        for instance, source in self.sources:
            if instance.ending or instance.still:
                continue
            due += self._next_timer(instance)
            if not instance.congested and (at_ns := source.due_ns()) is not None:
                due.append(at_ns)
        return min(due, default=None)

    def _next_timer(self, instance: Instance) -> list[int]:
        if not instance.timers or instance.full or instance.still or instance.ending:
            return []
        return [instance.timers[0][0]]

    def close(self) -> None:
        """Close every step once, also after a failure; then raise what the first of them raised."""
        if not self._closed:
            self._closed = True
            self._close_moving()
            self.site.close(self._close_once)

    def _close_once(self, step: Step) -> Callable[[], None]:
        """What all had ended is closed; then others may come, and be closed later."""
        if id(step) in self._shut:
            return lambda: None
        self._shut[id(step)] = step
        return step.close

    def _close_moving(self) -> None:
        """Close what belongs to a change or to sinks that have left."""
        try:
            if self.moving is not None:
                self.moving.close()
        finally:
            if self.cuts is not None:
                self.cuts.close()
