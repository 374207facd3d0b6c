"""One Bytewax process, in Bytewax's own environment; killed and started again by `peer.py`.

    python -m recovery_parts.bytewax_job words ORDER BATCH EPOCH_S STORE
    python -m recovery_parts.bytewax_job keys ARRIVALS BATCH EPOCH_S STORE PORT

Word count is that of `peer_systems/bytewax_peer.py`, with a recovery store of two partitions or (an
empty STORE) without. The keyed counts have a source of two partitions that go on from where their
last snapshot was; what would have come meanwhile is due at once, as with Tailrace. The sink tells a
receiver. A batch has as many records as are due, at most BATCH; or all, when it has to catch up.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from array import array
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

from peer_systems.bytewax_peer import dataflow
from peer_systems.feed import Order
from recovery_parts.arrivals import SOURCES, Arrivals, Due

CATCHING_UP = 4096


def tell(**what: Any) -> None:
    """One line for who has started us."""
    os.write(_ANSWERS, json.dumps(what).encode() + b"\n")


class _Part(StatefulSourcePartition):  # type: ignore[misc]
    def __init__(self, due: Due, batch: int) -> None:
        self._due = due
        self._batch = batch
        self._zero = datetime.now(UTC) - timedelta(microseconds=time.monotonic_ns() / 1_000)

    def next_batch(self) -> list[tuple[str, int]]:
        due, now_ns = self._due, time.monotonic_ns()
        late = due.begin_ns and now_ns - due.next_due_ns() > 10_000_000
        records = due.take(CATCHING_UP if late or not due.begin_ns else self._batch, now_ns)
        if records is None:
            raise StopIteration
        return records

    def next_awake(self) -> datetime | None:
        due_ns = self._due.next_due_ns()
        return self._zero + timedelta(microseconds=due_ns / 1_000) if due_ns else None

    def snapshot(self) -> tuple[int, int]:
        return self._due.position


class _Source(FixedPartitionedSource):  # type: ignore[misc]
    def __init__(self, arrivals: Arrivals, batch: int) -> None:
        self._arrivals = arrivals
        self._batch = batch

    def list_parts(self) -> list[str]:
        return [str(index) for index in range(SOURCES)]

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> _Part:
        emitted, begin_ns = resume_state or (0, 0)
        return _Part(Due(self._arrivals, int(for_part), emitted, begin_ns), self._batch)


class _Count(StatefulBatchLogic):  # type: ignore[misc]
    def __init__(self, count: int | None) -> None:
        self._count = count or 0

    def on_batch(self, values: list[int]) -> tuple[list[int], bool]:
        self._count += len(values)
        return values, StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self._count


class _Outside(StatelessSinkPartition):  # type: ignore[misc]
    def __init__(self, port: int, first: int) -> None:
        self._first: int | None = first
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(array("q", [os.getpid()]).tobytes())

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        numbers = array("q", [number for _, number in items])
        self._socket.sendall(numbers.tobytes())
        if self._first is not None and numbers[-1] >= self._first:
            self._first = None
            tell(paced=True)


class _Sink(DynamicSink):  # type: ignore[misc]
    def __init__(self, port: int, first: int) -> None:
        self._port = port
        self._first = first  # the number of the first record at a rate

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Outside:
        return _Outside(self._port, self._first)


def keyed(arrivals: Arrivals, batch: int, port: int) -> Dataflow:
    """Counts by key."""
    flow = Dataflow("keys")
    records = op.input("records", flow, _Source(arrivals, batch))
    counted = op.stateful_batch("count", records, _Count)
    op.output("outside", counted, _Sink(port, arrivals.keys))
    return flow


def main(what: str, told: str, batch: str, epoch_s: str, store: str, *more: str) -> None:
    """Run until the input ends."""
    recovery = None
    if store:
        if not Path(store).exists():
            Path(store).mkdir()
            init_db_dir(Path(store), SOURCES)
        recovery = RecoveryConfig(store)
    if what == "words":
        flow = dataflow(Order(**json.loads(told)), 1, int(batch))
    else:
        flow = keyed(Arrivals(**json.loads(told)), int(batch), int(more[0]))
    cluster_main(
        flow,
        [],
        0,
        epoch_interval=timedelta(seconds=float(epoch_s)),
        recovery_config=recovery,
    )
    tell(done=True)


if __name__ == "__main__":
    _ANSWERS = os.dup(1)
    os.dup2(2, 1)
    main(*sys.argv[1:])
