"""From one deployment to another while the stream flows: a worker's part of it.

First it is *prepared*: instances that will run here are built, and links opened that nobody uses
yet. When all workers have that, a marker goes through the topology as that of an epoch does, in a
job with checkpoints together with one. Where it has come on all links of a chain's instances, they
are cut: behind the marker they send by the new deployment, and what they own no more they give
away (`giving`, `taking`). So what was sent before the marker finds the old owner of a key and what
is sent behind it the new one, and of each sender each key's records stay in order.

Nothing waits but the records of keys whose state is on its way. What is under way between workers
is bounded, and given in slices between rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.graph.model import Rule
from tailrace.graph.wiring import InstanceId
from tailrace.runtime.alignment import Alignment, Group, nothing
from tailrace.runtime.deployment import Deployment
from tailrace.runtime.giving import Asked, Given, Giving, Taken
from tailrace.runtime.instance import Instance
from tailrace.runtime.markers import BEGINNING, Change, Checkpoint
from tailrace.runtime.moves import Moves
from tailrace.runtime.reading import SourceStep
from tailrace.runtime.sink import SinkStep
from tailrace.runtime.state import refuse_unpicklable
from tailrace.runtime.step import call
from tailrace.runtime.taking import Taking

if TYPE_CHECKING:
    from tailrace.runtime.core import Core

StateMessage = Asked | Given | Taken

_BASE_SHIFT = 40
_UNDER_WAY = 3
"""Messages with state that a worker may not have taken in yet, of each that sends some."""
_SLICE_NS = 50_000
_MOST_KEYS = 64
"""In one message, so that it is quickly taken in, too."""


class Moving:
    """One change of a core's deployment. Made when it is prepared."""

    def __init__(self, core: Core, number: int, after: Deployment) -> None:
        self.number = number
        self.moves = Moves(core.deployment, after)
        self._core = core
        self._base = number << _BASE_SHIFT
        self._alignment: Alignment | None = None
        self.begun = False
        self._uncut: set[str] = set()  # chains whose instances here are not cut yet
        self._new: dict[InstanceId, Instance] = {}
        self._giving: dict[InstanceId, Giving] = {}
        self._taking: dict[InstanceId, Taking] = {}
        self._early: dict[InstanceId, list[tuple[int, Given]]] = {}
        self._asked: dict[InstanceId, list[Asked]] = {}
        self._outbox: deque[tuple[int, StateMessage]] = deque()
        self._under_way: dict[int, int] = {}
        self._joined = {(one.operator, worker) for one, worker in self.moves.coming.items()}
        self._keys = 16
        self.moved_keys = 0
        """Given away so far,"""
        self.new_keys = 0
        """and taken in, since somebody set it back."""
        site = core.site
        try:
            for instance, worker in self.moves.coming.items():
                if worker == core.rank:
                    made = self._new[instance] = site.make(instance, after, self._base)
                    if made.source is not None:
                        made.source.settled = False
            for one in core.instances:
                if core.cuts is None:  # a marker may overtake the coordinator's word
                    one.on_marker = self._heard
                for inlet in one.inlets.values():
                    inlet.reopens = self._somebody_joins(inlet.stream, inlet.peer)
                self._keep_open(one)
                if self.moves.leaving.get(one.id) != core.rank:
                    site.open_links(one, after, self._base)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """It has not begun, and never will: be as before."""
        site = self._core.site
        for instance in self._new.values():
            site.part(instance)
            site.close_links(instance, None)
        for one in self._core.instances:
            one.kept_open = False
            if self._core.cuts is None:
                one.on_marker = None
            for inlet in one.inlets.values():
                inlet.reopens = False
            site.close_links(one, self.moves.before)
            if one.inlets:
                one.consider_time()
        site.closed()
        self.close()

    def _somebody_joins(self, stream: int, worker: int) -> bool:
        """Whether an instance will send on a stream in a worker, beside those that do."""
        deployment = self.moves.after
        if stream not in deployment.wiring.streams:
            return False
        if deployment.graph.streams[stream].grouping.rule is Rule.FORWARD:
            return False  # there each link has one sender
        source = deployment.wiring.streams[stream][0].operators[0]
        return (source, worker) in self._joined

    def _reopen(self, group: Group) -> None:
        for instance in group:
            for routers in instance.routers.values():
                for router in routers:
                    if self._somebody_joins(router.exchange.stream, self._core.rank):
                        router.exchange.reopen()

    def _keep_open(self, instance: Instance) -> None:
        """A source that may get splits of others must not have ended.

        Nor does it look for new ones: those of others would look new.
        """
        if instance.source is not None:
            before, after = self.moves.parallelism(instance.id.operator)
            instance.source.settled = before == after
        stays = self.moves.leaving.get(instance.id) != self._core.rank
        if instance.source is not None and stays and instance.id in self.moves.givers:
            if instance.ending:
                raise ValueError(
                    f"the source {instance.id} has read all that it had, and has ended; sources can"
                    " be rescaled only while all of their instances read"
                )
            instance.kept_open = True

    @property
    def brings(self) -> bool:
        """Whether instances come to this worker."""
        return self._core.rank in self.moves.coming.values()

    # ---- the marker ----

    def begin(self) -> None:
        """The marker starts from the sources; in a job without checkpoints."""
        if self.begun:
            return
        groups: dict[str, Group] = {}
        for instance in self._core.instances:
            groups.setdefault(instance.id.operator, []).append(instance)
        self._alignment = self.aligned(
            groups.values(), Change(self.number), self._core.before_cut_of
        )
        self._alignment.look()

    def _heard(self, marker: Change) -> None:
        self.begin()
        assert self._alignment is not None
        self._alignment.look()

    def aligned(
        self,
        groups: object,
        marker: Checkpoint | Change,
        before: Callable[[Group], None] = nothing,
    ) -> Alignment:
        """What cuts the instances of this worker as the marker comes."""
        self.begun = True
        found: list[Group] = list(groups)  # type: ignore[call-overload]
        self._uncut = {group[0].id.operator for group in found}
        for instance in [*self._new.values()]:
            if instance.id.operator not in self._uncut:
                self._join(instance)
                self._start(instance)

        def cut(group: Group) -> None:
            before(group)
            self._reopen(group)

        return Alignment(found, marker, may_cut=self._may_cut, before=cut, behind=self._cut)

    def _may_cut(self, group: Group) -> bool:
        """Not while one that gives something away waits for something outside, or is ending.

        Meanwhile its sources give nothing: otherwise that might never end.
        """
        waits = any(
            not instance.ended
            and instance.id in self.moves.takers
            and (instance.ending or any(step.outstanding for _, step in instance.steps))
            for instance in group
        )
        for instance in group:
            if instance.source is not None:
                instance.still = waits
        return not waits

    def _cut(self, group: Group) -> None:
        operator = group[0].id.operator
        core, after = self._core, self.moves.after
        coming = [one for one in self._new.values() if one.id.operator == operator]
        for instance in coming:  # first: who is new behind them must not hear a time without theirs
            self._join(instance)
        core.site.relay(operator, after, self._base)
        for instance in coming:
            self._start(instance)
        for instance in group:
            if self.moves.leaving.get(instance.id) == core.rank:
                self._leave(instance)
            else:
                self._stay(instance)
        self._uncut.discard(operator)
        core.changed()

    def _join(self, instance: Instance) -> None:
        """Send beside those that are here, with a time of its own."""
        for routers in instance.routers.values():
            for router in routers:
                router.join()
                router.exchange.forget_time()

    def _start(self, instance: Instance) -> None:
        del self._new[instance.id]
        for inlet in instance.inlets.values():
            inlet.fresh = False
        self._core.site.instances[instance.id] = instance
        if instance.source is not None and self._core.stopping:
            instance.source.stop()
        if self._core.cuts is not None:
            self._core.cuts.add(instance)
        self._take_for(instance)
        self._core.changed()

    def _leave(self, instance: Instance) -> None:
        core, site = self._core, self._core.site
        site.part(instance, self._new.values())
        core.counting.left(instance, site.close_links(instance, None))
        if site.instances[instance.id] is instance:  # else another is it here
            del site.instances[instance.id]
        instance.still = True
        if core.cuts is None:
            for name, step in instance.steps:
                if isinstance(step, SinkStep) and not instance.ended:
                    call(name, "finish", step.finish)
        else:
            core.cuts.remove(instance)
        self._give(instance)

    def _stay(self, instance: Instance) -> None:
        graph, moves = self.moves.after.graph, self.moves
        for name, context in instance.contexts.items():
            context.parallelism = graph.operator(name).parallelism
        first = instance.steps[0][1]
        if isinstance(first, SourceStep):
            first.rescale(instance.id.index, graph.operator(instance.steps[0][0]).parallelism)
        gone = self._core.site.close_links(instance, moves.after)
        self._core.counting.closed_links(gone)
        for inlet in instance.inlets.values():
            if inlet.reopens:  # who joins its senders may be behind them
                inlet.watermark = BEGINNING
                inlet.ended = False
            inlet.fresh = inlet.reopens = False
        if instance.id in moves.takers:
            instance.still = moves.routes(instance.id.operator) is not None
            self._give(instance)
        if instance.id in moves.givers:
            self._take_for(instance)
        if gone and instance.inlets:
            instance.consider_time()

    # ---- state ----

    def _give(self, instance: Instance) -> None:
        giving = Giving(instance, self.moves, self.number, self._send_given)
        self._giving[instance.id] = giving
        for asked in self._asked.pop(instance.id, ()):
            giving.answer(asked)
        if giving.done:
            self._given(giving)

    def _given(self, giving: Giving) -> None:
        """All that an instance had to give is on its way."""
        instance = giving.instance
        self.moved_keys += giving.moved_keys
        del self._giving[instance.id]
        if self.moves.leaving.get(instance.id) == self._core.rank:
            for name, step in instance.steps:
                if self._core.cuts is None or not isinstance(step, SinkStep):
                    call(name, "close", step.close)
        else:
            instance.still = False
            if instance.inlets:
                instance.consider_time()

    def _take_for(self, instance: Instance) -> None:
        if instance.id not in self.moves.givers:
            self._release(instance)
            return
        instance.kept_open = True
        self._taking[instance.id] = Taking(instance, self.moves)
        for sender, given in self._early.pop(instance.id, ()):
            self._take(sender, given)

    def _release(self, instance: Instance) -> None:
        """A new instance begins."""
        for inlet in instance.inlets.values():
            if inlet.held:
                inlet.release(instance.clock_ns())
        if instance.inlets:
            instance.consider_time()

    def _send_given(self, given: Given) -> None:
        self._send(self.moves.after.workers[given.taker], given)

    def _send(self, worker: int, message: StateMessage) -> None:
        if worker == self._core.rank:
            self.receive(worker, message)
            return
        if isinstance(message, Given):
            self._under_way[worker] = self._under_way.get(worker, 0) + 1
        self._outbox.append((worker, message))
        self._post()

    def _post(self) -> bool:
        sent = False
        while self._outbox:
            worker, message = self._outbox[0]
            try:
                if not self._core.send_state(worker, message):
                    break
            except Exception:
                for name, entries in message.entries if isinstance(message, Given) else ():
                    refuse_unpicklable(name, entries, "go to another worker", "move")
                raise
            self._outbox.popleft()
            sent = True
        return sent

    def receive(self, sender: int, message: StateMessage) -> None:
        """Something about state has come from a worker."""
        if isinstance(message, Taken):
            self._under_way[sender] -= message.messages
        elif isinstance(message, Given):
            self._take(sender, message)
        elif message.giver in self._giving:
            self._giving[message.giver].answer(message)
        elif message.giver.operator in self._uncut or not self.begun:
            self._asked.setdefault(message.giver, []).append(message)
        # Else it has given all by now, and has said so.

    def _take(self, sender: int, given: Given) -> None:
        taking = self._taking.get(given.taker)
        if taking is None:
            self._early.setdefault(given.taker, []).append((sender, given))
            return
        was_ready = taking.ready
        self.new_keys += sum(len(entries) for _, entries in given.entries)
        taking.take(given)
        if sender != self._core.rank:
            self._send(sender, Taken(self.number, 1))
        if taking.ready and not was_ready:
            self._release(taking.instance)
        if taking.done:
            taking.instance.kept_open = False
            del self._taking[given.taker]
            if taking.instance.inlets:
                taking.instance.consider_time()

    # ---- between rounds ----

    def look(self) -> bool:
        """Go on as far as it goes; whether anything was done."""
        if self._alignment is not None:
            self._alignment.look()
        for taking in self._taking.values():
            keeper = taking.keeper
            if keeper is not None and keeper.wanted:
                giver, keys = keeper.wanted.popitem()
                worker = self.moves.before.workers[giver]
                self._send(worker, Asked(self.number, giver, taking.instance.id, keys))
                return True  # what answers at once may have ended something here
        posted = self._post()
        self._core.counting.closed_lanes(self._core.site.closed())
        return posted

    def work(self, budget_ns: int, clock_ns: Callable[[], int]) -> bool:
        """Give keys for about so long; whether there was anything to do."""
        cuts = self._core.cuts
        if not self._giving or (cuts is not None and not cuts.at_rest):
            return False
        now_ns = clock_ns()
        until_ns = now_ns + budget_ns
        busy = False
        while now_ns < until_ns and self._giving:
            if self._outbox or any(many >= _UNDER_WAY for many in self._under_way.values()):
                break
            giving = next(iter(self._giving.values()))
            looked = giving.some(self._keys)
            busy = True
            if giving.done:
                self._given(giving)
            began_ns, now_ns = now_ns, clock_ns()
            if now_ns - began_ns > 2 * _SLICE_NS:
                self._keys = max(self._keys // 2, 1)
            elif now_ns - began_ns < _SLICE_NS and looked == self._keys:
                self._keys = min(self._keys * 2, _MOST_KEYS)
        return busy

    @property
    def done(self) -> bool:
        """Whether this worker is where it is to be."""
        return (
            self.begun
            and not self._uncut
            and not self._new
            and not self._giving
            and not self._taking
            and not self._early
            and not self._outbox
            and not any(self._under_way.values())
            and not self._core.site.closing
        )

    def close(self) -> None:
        """Close what nobody else would: instances that have not begun, and those that leave."""
        new = [*self._new.values()]
        left = new + [
            giving.instance
            for giving in self._giving.values()
            if self.moves.leaving.get(giving.instance.id) == self._core.rank
        ]
        self._new.clear()
        self._giving.clear()
        kept = SinkStep if self._core.cuts is not None else ()  # those closes who commits them
        for instance in left:
            for name, step in instance.steps:
                if instance in new or not isinstance(step, kept):
                    call(name, "close", step.close)
