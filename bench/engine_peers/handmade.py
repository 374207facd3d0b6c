"""Pipelines between two processes as a competent engineer writes them by hand.

multiprocessing with a pipe or with pyzmq, pickle, a fixed number of records per message. No
metrics, no flow control beyond what keeps two blocking writers from waiting for each other. Each
message has the due time of its first record, so that latency can be measured at all.

Word count comes in two shapes: `line` (one process generates and splits, the other counts) and
`both` (each generates, splits and counts, and they exchange the words that belong to the other).
The chain goes to and fro: source and second operator in one process, first operator and sink in
the other.
"""

import multiprocessing
import select
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fcntl import F_SETPIPE_SZ, fcntl
from functools import cache
from itertools import cycle, islice
from multiprocessing.connection import Connection
from pathlib import Path
from pickle import dumps, loads
from typing import Any, cast
from zlib import crc32

from engine_peers.workloads import (
    WORDS_PER_SENTENCE,
    ChainTally,
    Outcome,
    WordTally,
    audit,
    chain_records,
    percentiles,
    rate_within,
    relay,
    sentences,
    window,
)
from harness.arrivals import EVEN, pace_of

_PIPE_BYTES = 1 << 20
_AHEAD = {1: 1024, 64: 128, 512: 16}
"""Messages under way, by batch: fewer than a pipe holds, so that two writers never both block."""
_REPLY_TIMEOUT_S = 20.0
_POOLS: dict[str, Callable[[], list[Any]]] = {
    "wordcount": cache(sentences),
    "chain": cache(chain_records),
}

Send = Callable[[bytes], Any]
Receive = Callable[[float | None], bytes | None]
"""`receive(timeout_s)`: a message, or None when there is none within the time."""


@dataclass(frozen=True)
class Variant:
    """One way to write it."""

    workload: str
    shape: str
    transport: str
    batch: int

    @property
    def label(self) -> str:
        """As in the tables."""
        return f"{self.workload} {self.shape}, {self.transport}, {self.batch} per message"


@dataclass(frozen=True)
class Task:
    """One run of a variant: unpaced (rate 0) or paced."""

    variant: Variant
    seconds: float
    rate_per_s: float
    pacing: str = EVEN


VARIANTS = tuple(
    Variant(workload, shape, transport, batch)
    for workload, shape in (("wordcount", "line"), ("wordcount", "both"), ("chain", "to and fro"))
    for transport in ("pipe", "zmq")
    for batch in (1, 64)
)


class Batches:
    """The source: batches of the pool's records, as fast as they are asked for, or when due."""

    def __init__(self, task: Task, index: int, sources: int) -> None:
        pool = _POOLS[task.variant.workload]()
        self._records: Iterator[Any] = islice(cycle(pool), index, None, sources)
        self._batch = task.variant.batch
        self.first_ns = time.monotonic_ns()
        self._end_ns = self.first_ns + int(task.seconds * 1e9)
        self._dues_ns: Iterator[int] | None = None
        self._next_ns = 0
        if task.rate_per_s:
            offsets_ns = pace_of(task.pacing, task.rate_per_s).offsets_ns(index, sources, 0)
            self._dues_ns = map(self.first_ns.__add__, offsets_ns)
            self._next_ns = next(self._dues_ns)
        self.emitted = 0
        self.due_ns = 0

    def wait_s(self) -> float | None:
        """How long until the next batch is due; None: the source has ended."""
        now_ns = time.monotonic_ns()
        if self._dues_ns is None:
            return 0.0 if now_ns < self._end_ns else None
        if self._next_ns >= self._end_ns:
            return None
        return max(self._next_ns - now_ns, 0) / 1e9

    def take(self) -> list[Any]:
        """The next batch, if it is due: of what is due now, no more than belongs in a message."""
        count = self._batch
        if self._dues_ns is not None:
            self.due_ns = self._next_ns
            now_ns, count = time.monotonic_ns(), 0
            while count < self._batch and (self._next_ns <= now_ns or not count):
                count += 1
                self._next_ns = next(self._dues_ns)
                if self._next_ns >= self._end_ns:
                    break
        records = list(islice(self._records, count))
        self.emitted += count
        return records


class Latencies:
    """(due time of the first record, arrival, records) of each message that reached a sink."""

    def __init__(self) -> None:
        self.all: list[tuple[int, int, int]] = []

    def note(self, due_ns: int, count: int) -> None:
        """A message is through; an unpaced one has no due time."""
        if due_ns:
            self.all.append((due_ns, time.monotonic_ns(), count))


def _count(words: list[str], counts: dict[str, int], tally: WordTally) -> None:
    pairs: list[tuple[str, int]] = []
    add, get = pairs.append, counts.get
    for word in words:
        count = counts[word] = get(word, 0) + 1
        add((word, count))
    tally.write(pairs, len(pairs))


def _split(batch: list[str]) -> list[str]:
    words: list[str] = []
    for sentence in batch:
        words += sentence.split()
    return words


def line_source(send: Send, source: Batches) -> None:
    """Word count in a line: generate and split."""
    while (wait_s := source.wait_s()) is not None:
        if wait_s:
            _until(wait_s)
        batch = source.take()
        send(dumps((source.due_ns, _split(batch)), 5))
    send(b"")


def line_sink(receive: Receive, tally: WordTally, latencies: Latencies) -> None:
    """Word count in a line: count."""
    counts: dict[str, int] = {}
    while payload := receive(None):
        due_ns, words = loads(payload)
        _count(words, counts, tally)
        latencies.note(due_ns, len(words))


def both(
    rank: int, send: Send, receive: Receive, source: Batches, tally: WordTally, late: Latencies
) -> None:
    """Word count in both: generate and split; keep my words, send the other's."""
    counts: dict[str, int] = {}
    owners: dict[str, int] = {}
    ahead = 0
    limit = _AHEAD[source._batch]
    ended = False

    def accept(payload: bytes) -> None:
        nonlocal ahead, ended
        if not payload:
            ended = True
            return
        ahead -= 1
        due_ns, words = loads(payload)
        _count(words, counts, tally)
        late.note(due_ns, len(words))

    while (wait_s := source.wait_s()) is not None:
        if wait_s:
            payload = receive(wait_s)
            if payload is not None:
                accept(payload)
            continue
        if ahead >= limit and not ended:
            accept(receive(None) or b"")
            continue
        parts: tuple[list[str], list[str]] = ([], [])
        add = parts[0].append, parts[1].append
        for word in _split(source.take()):
            try:
                owner = owners[word]
            except KeyError:
                owner = owners[word] = crc32(word.encode()) & 1
            add[owner](word)
        send(dumps((source.due_ns, parts[1 - rank]), 5))
        ahead += 1
        if parts[rank]:
            _count(parts[rank], counts, tally)
            late.note(source.due_ns, len(parts[rank]))
    send(b"")
    while not ended:
        accept(receive(None) or b"")


def chain_outer(send: Send, receive: Receive, source: Batches) -> None:
    """The chain's source and second operator."""
    under_way = 0
    limit = _AHEAD[source._batch] // 2
    while True:
        wait_s = source.wait_s()
        if wait_s == 0 and under_way < limit:
            batch = source.take()
            send(dumps((1, source.due_ns, batch), 5))
            under_way += 1
            continue
        if wait_s is None and not under_way:
            break
        payload = receive(wait_s or None)
        if payload is not None:
            _, due_ns, records = loads(payload)
            under_way -= 1
            send(dumps((2, due_ns, list(map(relay, records))), 5))
    send(b"")


def chain_inner(send: Send, receive: Receive, tally: ChainTally, latencies: Latencies) -> None:
    """The chain's first operator and sink."""
    while payload := receive(None):
        hop, due_ns, records = loads(payload)
        if hop == 1:
            send(dumps((1, due_ns, list(map(relay, records))), 5))
        else:
            tally.write(records, len(records))
            latencies.note(due_ns, len(records))


def _until(wait_s: float) -> None:
    """Sleep most of it, spin the rest: sleeps end late."""
    end = time.perf_counter() + wait_s
    if wait_s > 0.0005:
        time.sleep(wait_s - 0.0003)
    while time.perf_counter() < end:
        pass


def _pipe(inbox: Connection, outbox: Connection) -> tuple[Send, Receive]:
    files = [inbox.fileno()]
    take = inbox.recv_bytes

    def receive(timeout_s: float | None) -> bytes | None:
        if timeout_s is not None and not select.select(files, [], [], timeout_s)[0]:
            return None
        return take()

    return outbox.send_bytes, receive


def _zmq(rank: int, folder: Path) -> tuple[Send, Receive]:
    import zmq

    context: Any = zmq.Context.instance()
    inbox, outbox = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    inbox.bind(f"ipc://{folder}/zmq-{rank}")
    outbox.connect(f"ipc://{folder}/zmq-{1 - rank}")
    outbox.linger = 0  # nothing is under way when it ends
    return outbox.send, polling(inbox)


def polling(inbox: Any) -> Receive:
    """Receive from a pyzmq socket. Its own timeouts are whole milliseconds, so it is polled."""
    import zmq

    take = inbox.recv

    def receive(timeout_s: float | None) -> bytes | None:
        if timeout_s is None:
            return cast(bytes, take())
        end = time.perf_counter() + timeout_s
        while True:
            try:
                return cast(bytes, take(zmq.NOBLOCK))
            except zmq.Again:
                if time.perf_counter() >= end:
                    return None

    return receive


def do_task(task: Task, rank: int, send: Send, receive: Receive) -> dict[str, Any]:
    """One side of a run; what `outcome_of` needs from it."""
    variant = task.variant
    paced = task.rate_per_s > 0
    latencies = Latencies()
    tally: WordTally | ChainTally | None = None
    source: Batches | None = None
    if variant.shape == "both" or rank == 1:
        tally = ChainTally(paced) if variant.workload == "chain" else WordTally(paced)
    if variant.shape == "both" or rank == 0:
        source = Batches(task, rank, 2 if variant.shape == "both" else 1)
    cpu_s = time.process_time()
    match variant.workload, source, tally:
        case "chain", Batches(), None:
            chain_outer(send, receive, source)
        case "chain", None, ChainTally():
            chain_inner(send, receive, tally, latencies)
        case _, Batches(), WordTally():
            both(rank, send, receive, source, tally, latencies)
        case _, Batches(), None:
            line_source(send, source)
        case _, None, WordTally():
            line_sink(receive, tally, latencies)
    return {
        "cpu_s": time.process_time() - cpu_s,
        "sink": tally.results() if tally else None,
        "source": (source.emitted, source.first_ns) if source else None,
        "latencies": latencies.all,
    }


def peer_main(
    rank: int, folder: Path, commands: Connection, inbox: Connection, outbox: Connection
) -> None:
    """One of the two processes: does tasks until told to end."""
    fcntl(outbox.fileno(), F_SETPIPE_SZ, _PIPE_BYTES)
    ways = {"pipe": _pipe(inbox, outbox), "zmq": _zmq(rank, folder)}
    while (task := commands.recv()) is not None:
        try:
            commands.send(do_task(task, rank, *ways[task.variant.transport]))
        except Exception:
            commands.send(traceback.format_exc())


class Pair:
    """The two processes, alive for the whole benchmark."""

    def __init__(self, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        forth, back = context.Pipe(duplex=False), context.Pipe(duplex=False)
        self._commands: list[Any] = []
        self._processes: list[Any] = []
        for rank, (inbox, outbox) in enumerate(((back[0], forth[1]), (forth[0], back[1]))):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=peer_main, args=(rank, folder, theirs, inbox, outbox), daemon=True
            )
            process.start()
            theirs.close()
            self._commands.append(ours)
            self._processes.append(process)
        for connection in (*forth, *back):
            connection.close()

    def run(
        self,
        variant: Variant,
        seconds: float,
        rate_per_s: float,
        warm_s: float,
        pacing: str = EVEN,
    ) -> Outcome:
        """Run a variant; the first `warm_s` of it do not count."""
        task = Task(variant, seconds, rate_per_s, pacing)
        for commands in self._commands:
            commands.send(task)
        answers = []
        for commands in self._commands:
            if not commands.poll(seconds + _REPLY_TIMEOUT_S):
                raise RuntimeError(f"handmade {variant.label}: no answer")
            answer = commands.recv()
            if isinstance(answer, str):
                raise RuntimeError(f"handmade {variant.label}:\n{answer}")
            answers.append(answer)
        return outcome_of(variant, answers, seconds, warm_s)

    def end(self) -> None:
        """End both."""
        for commands, process in zip(self._commands, self._processes, strict=True):
            with suppress(OSError):
                commands.send(None)
            process.join(1.0)
            if process.is_alive():
                process.kill()


def outcome_of(
    variant: Variant, answers: list[dict[str, Any]], seconds: float, warm_s: float
) -> Outcome:
    """What both sides have told, checked and summed up."""
    sources = [answer["source"] for answer in answers if answer["source"]]
    sinks = [answer["sink"] for answer in answers if answer["sink"]]
    emitted = [source[0] for source in sources]
    starts_ns = [source[1] for source in sources]
    begin_ns, end_ns = window(starts_ns, seconds, warm_s)
    unit = WORDS_PER_SENTENCE if variant.workload == "wordcount" else 1
    rate = rate_within(sinks, begin_ns, end_ns) / unit
    lost, duplicated = audit(variant.workload, emitted, sinks)
    cpu_s = sum(answer["cpu_s"] for answer in answers)
    outcome = Outcome(rate, cpu_s * 1e6 / max(sum(emitted), 1), lost, duplicated)
    values = [
        (arrived_ns - due_ns) / 1e6
        for answer in answers
        for due_ns, arrived_ns, count in answer["latencies"]
        if due_ns >= begin_ns
        for _ in range(count)
    ]
    return replace(outcome, latency_ms=percentiles(values))
