"""A running job as text: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from tailrace.connectors.console import Console
from tailrace.connectors.memory import Call
from tailrace.control.progress.summary import Summary
from tailrace.graph.model import Graph
from tailrace.runtime.sink import SinkLogic
from tailrace.spark.job import Job

_PERIOD_S = 0.5
_PLAIN_EVERY = 4


def _count(number: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} "


def _time(microseconds: float) -> str:
    if microseconds != microseconds:  # nan: nothing yet
        return "-"
    return f"{microseconds / 1000:.2f} ms" if microseconds >= 1000 else f"{microseconds:.0f} µs"


def _times(p50_us: float, p99_us: float) -> str:
    return f"{_time(p50_us)}/{_time(p99_us)}"


def _fill(now: Summary, chain: str) -> str:
    """How much waits before a chain, and how much of the room for it that is."""
    room = now.room.get(chain)
    if not room:
        return ""  # a source, or nothing heard yet
    queued = now.queued[chain]
    return f"{_count(queued).rstrip()} ({queued / room:.0%})"


def render(job: Job, now: Summary, before: Summary) -> list[str]:
    """What the job does, in lines; rates are those between two summaries."""
    seconds = max((now.at_ns - before.at_ns) / 1e9, 1e-9)

    def rate(new: int, old: int) -> str:
        return _count(max(new - old, 0) / seconds)

    homes: dict[str, list[int]] = {}
    queues = {chain.operators[0]: _fill(now, chain.label) for chain in job.chains}
    for chain in job.chains:
        for name in chain.operators:
            homes[name] = [job.placement[instance] for instance in chain.instances]
    recent = now.latency_since(before)
    lines = [
        f"{job.name}: {job.status}    latency p50 {_time(recent.percentile_ns(50) / 1000)}"
        f"   p99 {_time(recent.percentile_ns(99) / 1000)}"
        f"   p99.9 {_time(recent.percentile_ns(99.9) / 1000)}"
        + (f"   ({now.clocks})" if now.clocks else ""),
        f"{'operator':<16}{'records/s':>12}{'execute p50/p99':>20}{'queued':>16}{'skipped':>9}"
        "   on workers",
    ]
    for name, operator in now.operators.items():
        old = before.operators.get(name, operator)
        where = " ".join(str(worker) for worker in homes[name])
        lines.append(
            f"{name:<16}{rate(operator.records_in, old.records_in):>11}"
            f"{_times(operator.execute_p50_us, operator.execute_p99_us):>21}"
            f"{queues.get(name, ''):>16}{operator.skipped + operator.dead:>9}   {where}"
        )
    lines.append(f"{'stream':<32}{'transfer p50/p99':>20}{'wait p50/p99':>20}{'under way':>11}")
    for label, stream in now.streams.items():
        transfer = _times(stream.transfer_p50_us, stream.transfer_p99_us)
        wait = _times(stream.wait_p50_us, stream.wait_p99_us)
        slow = "  throttles its senders" if label in now.throttled else ""
        lines.append(f"{label:<32}{transfer:>20}{wait:>20}{max(stream.under_way, 0):>11}{slow}")
    for worker in job.workers:
        rank = worker["rank"]
        used = (now.cpu_s.get(rank, 0) - before.cpu_s.get(rank, 0)) / seconds
        ways = ", ".join(f"{way} to {peer}" for peer, way in worker["ways"].items())
        trouble = now.workers[rank].trouble if rank in now.workers else ""
        lines.append(
            f"worker {rank}: {used:4.0%} of a core"
            f"   pid {worker['pid']} on {worker['host']}   {ways}"
            + (f"   {trouble}" if trouble else "")
        )
    if now.changes:
        lines.append(str(now.changes[-1]))
    if now.thought:
        lines.append(now.thought)
    if now.events:
        lines.append(f"{now.restarts} restart{'s' * (now.restarts != 1)}, last: {now.events[-1]}")
    return lines


def prints(graph: Graph) -> bool:
    """Whether a sink prints: a console, or the function `print`."""
    sinks = [o.logic.sink for o in graph.operators if isinstance(o.logic, SinkLogic)]
    return any(
        isinstance(sink, Console) or (isinstance(sink, Call) and sink.function is print)
        for sink in sinks
    )


def watch(
    job: Job,
    seconds: float | None = None,
    out: TextIO = sys.stderr,
    sleep: Callable[[float], object] = time.sleep,
    *,
    in_place: bool = True,
) -> None:
    """Show the job until it ends or the time is over, which counts from when it runs.

    On a terminal the view stays in place and so wipes out what others print meanwhile, unless
    `in_place` is false.
    """
    live = out.isatty() and in_place
    if out.isatty() and not in_place:
        out.write("a sink prints here: the view is one line now and then, and no table\n")
    job.await_running()
    started = time.monotonic()
    before = job.last_progress
    shown = turn = 0
    while job.is_active and (seconds is None or time.monotonic() - started < seconds):
        sleep(_PERIOD_S)
        now = job.last_progress
        if (now.at_ns, now.phase, now.events) == (before.at_ns, before.phase, before.events):
            continue
        lines = render(job, now, before)
        turn += 1
        if live:
            out.write(f"\x1b[{shown}F\x1b[J" * bool(shown) + "\n".join(lines) + "\n")
            shown = len(lines)
        elif now.events != before.events:
            out.write(f"{lines[0]}\n{lines[-1]}\n")
        elif [one.status for one in now.changes] != [one.status for one in before.changes]:
            out.write(f"{lines[0]}\n{now.changes[-1]}\n")
        elif turn % _PLAIN_EVERY == 1:
            out.write(lines[0] + "\n")
        out.flush()
        before = now
