"""Has a worker's instances count pairs of keys: those reached by key that send by key.

What follows from a record later (a window that closes, a coroutine that ends) is nobody's: it is
not counted, and neither is anything of an instance that has records wait for coroutines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.graph.model import Rule
from tailrace.graph.wiring import InstanceId
from tailrace.routing.pairs import Sketched
from tailrace.routing.sketch import PairSketch
from tailrace.runtime.instance import Instance
from tailrace.runtime.keypairs import PairCounter
from tailrace.runtime.step import Step

if TYPE_CHECKING:
    from tailrace.runtime.building import Site

SKETCH_BYTES = 1 << 20
"""Of each instance."""


class PairCounting:
    """See above. Costs nothing once it is `stop`ped."""

    def __init__(
        self,
        site: Site,
        clock_ns: Callable[[], int],
        size_bytes: int = SKETCH_BYTES,
        every: int | None = None,
    ) -> None:
        """With `every`, one record in so many counts; without, as many as cost about nothing."""
        self._site = site
        self._clock_ns = clock_ns
        self._size_bytes = size_bytes
        self._every = every
        self._counters: dict[InstanceId, PairCounter] = {}
        self._sketches: dict[InstanceId, dict[str, PairSketch]] = {}
        """By the operator that is reached."""
        self.attach()

    def attach(self) -> None:
        """Count at instances that are new, and begin anew at all others."""
        self.clear()
        for instance in self._site.instances.values():
            known = self._counters.get(instance.id)
            if known is None or instance.queue.counter is not known:  # it may be another of that id
                self._counters.pop(instance.id, None)
                self._sketches.pop(instance.id, None)
                self._attach(instance)
        for gone in self._counters.keys() - self._site.instances.keys():
            del self._counters[gone], self._sketches[gone]

    def _attach(self, instance: Instance) -> None:
        deployment = self._site.deployment
        graph, streams = deployment.graph, deployment.wiring.streams
        waits = any(type(step).busy is not Step.busy for _, step in instance.steps)
        routers = [
            (streams[router.exchange.stream][1].operators[0], router)
            for some in instance.routers.values()
            for router in some
            if graph.streams[router.exchange.stream].grouping.rule is Rule.KEY
        ]
        ports = [
            [stream.grouping for stream in graph.into(instance.id.operator) if stream.port == port]
            for port in range(graph.operator(instance.id.operator).ports)
        ]
        by_key = [
            bool(port) and all(one.rule is Rule.KEY and one == port[0] for one in port)
            for port in ports
        ]
        if waits or not routers or not any(by_key):
            return
        counter = PairCounter(by_key, self._clock_ns, self._every)
        targets = dict.fromkeys(target for target, _ in routers)
        sketches = {target: PairSketch(self._size_bytes // len(targets)) for target in targets}
        for target, router in routers:
            router.count(counter, sketches[target])
        instance.queue.counter = counter
        self._counters[instance.id] = counter
        self._sketches[instance.id] = sketches

    def clear(self) -> None:
        """Begin anew."""
        for name, counter in self._counters.items():
            counter.clear()
            for sketch in self._sketches[name].values():
                sketch.clear()

    def stop(self) -> None:
        """Count no more, and forget what was counted."""
        for name in self._counters:
            instance = self._site.instances.get(name)
            if instance is not None:
                instance.queue.counter = None
                for routers in instance.routers.values():
                    for router in routers:
                        router.count(None, None)
        self._counters.clear()
        self._sketches.clear()

    @property
    def sampled(self) -> int:
        """How many records were looked at."""
        return sum(counter.sampled for counter in self._counters.values())

    def counted(self) -> list[Sketched]:
        """What was counted, of each instance, as plain data."""
        return [
            Sketched(
                name.operator,
                target,
                sketch.counts(),
                sketch.total,
                sketch.floor,
                self._counters[name].scale,
            )
            for name, sketches in self._sketches.items()
            for target, sketch in sketches.items()
        ]
