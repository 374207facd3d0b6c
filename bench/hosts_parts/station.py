"""A process on one of the hosts, which does what the benchmark tells it, a line each.

    drive HOST WORKERS      be the driver: a coordinator for so many workers; its address
    watch ORDER             when the job runs, and what it has done when it has ended
    work ORDER              be a worker until the job ends
    hand ORDER              be one half of a handmade pipeline
    spark MASTER HOST DIR   be the driver of a Spark application
    run ORDER               run a workload on it

An ORDER is a pickle in base 64, so is what `watch` and `hand` answer with. The worker is the very
class that a Spark task runs; only who started the process differs.
"""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine_peers.handmade import Task, do_task
from engine_peers.on_tailrace import OnSpark
from hosts_parts.orders import obey, packed, session, unpacked
from hosts_parts.wires import WIRES

_PATIENCE_S = 30.0


class Station:
    """What the commands do; each returns its answer."""

    def __init__(self) -> None:
        from tailrace.control.coordinator import Coordinator

        self._make = Coordinator
        self._coordinator: Coordinator | None = None
        self._spark: OnSpark | None = None

    def drive(self, host: str, workers: str) -> dict[str, Any]:
        """See above."""
        self._coordinator = self._make(int(workers), host, lambda: None)
        return {"address": self._coordinator.address, "secret": self._coordinator.secret.hex()}

    def watch(self, order: str) -> dict[str, Any]:
        """See above; the warm-up's latencies are told apart."""
        from tailrace.control.progress.summary import summarise
        from tailrace.graph.wiring import wire

        graph, warm_s, seconds = unpacked(order)
        coordinator = self._coordinator
        assert coordinator is not None
        wiring = wire(graph)
        try:
            if not coordinator.started.wait(_PATIENCE_S):
                raise RuntimeError(f"only {sorted(coordinator.roster.hellos)} have come")
            time.sleep(warm_s)
            warm = summarise(coordinator.roster, wiring)
            coordinator.join(seconds + _PATIENCE_S)
            if coordinator.roster.phase != "stopped":
                raise RuntimeError(coordinator.roster.reason or "the job did not end")
            summary = summarise(coordinator.roster, wiring)
            ways = {way for each in coordinator.roster.ways.values() for way in each.values()}
            return {"found": packed((summary, warm, sorted(ways)))}
        finally:
            coordinator.stop(drain=False)
            coordinator.join(_PATIENCE_S)

    def work(self, order: str) -> dict[str, Any]:
        """See above."""
        from tailrace.control.worker import Worker

        settings, rank, executor = unpacked(order)
        worker = Worker(settings, rank, executor)
        worker.run()
        return {"error": worker.error}

    def hand(self, order: str) -> dict[str, Any]:
        """See above."""
        task, rank, addresses, port = unpacked(order)
        assert isinstance(task, Task)
        send, receive, close = WIRES[task.variant.transport](rank, addresses, port)
        try:
            return {"found": packed(do_task(task, rank, send, receive))}
        finally:
            close()

    def spark(self, master: str, host: str, folder: str) -> dict[str, Any]:
        """See above."""
        self._spark = OnSpark(Path(folder), lambda: session(master, host, "tailrace hosts"))
        return {}

    def run(self, order: str) -> dict[str, Any]:
        """See above."""
        assert self._spark is not None
        # As plain data: what runs on Spark pickles classes of the workloads by value, and those
        # would be others at the receiver.
        return {"found": asdict(self._spark.run(**unpacked(order)))}

    def end(self) -> None:
        """Stop Spark, if it was started."""
        if self._spark is not None:
            self._spark.end()


def main() -> None:
    """Obey until there are no more lines."""
    obey(Station())


if __name__ == "__main__":
    from hosts_parts.station import main as run

    run()
