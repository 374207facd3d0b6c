"""From what a peer system's sources and sinks left in their folder to what was measured."""

import json
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_peers.workloads import (
    POOL,
    WORDS_PER_SENTENCE,
    Outcome,
    audit,
    percentiles,
    rate_within,
)
from peer_systems.feed import Order


@dataclass(frozen=True)
class Measured:
    """One run of one system."""

    rate_per_s: float
    lost: int
    duplicated: int
    processes: int
    latency_ms: dict[str, float] = field(default_factory=dict)
    """By percentile; empty when unpaced."""
    saturated: bool = False
    """The sources had to give up: the rate is more than the system takes."""
    cpu_s: float = 0.0
    """Of all its processes, over the whole run; 0: not measured."""

    @classmethod
    def of(cls, outcome: Outcome, processes: int) -> "Measured":
        """The part of an engine benchmark's outcome that is compared here."""
        return cls(
            outcome.rate_per_s, outcome.lost, outcome.duplicated, processes, outcome.latency_ms
        )


def measured(order: Order, warm_s: float, processes: int) -> Measured:
    """Read the folder of a run that has ended; the first `warm_s` do not count."""
    folder = Path(order.folder)
    sources = [json.loads(path.read_text()) for path in sorted(folder.glob("source-*.json"))]
    paths = sorted(folder.glob("sink-*.json"))
    if not sources or not paths:
        raise ValueError(f"{len(sources)} sources and {len(paths)} sinks left their numbers")
    sink = merged([json.loads(path.read_text()) for path in paths])
    emitted = [source["emitted"] for source in sources]
    begin_ns = max(source["first_ns"] for source in sources) + int(warm_s * 1e9)
    end_ns = max(source["end_ns"] for source in sources)
    if end_ns <= begin_ns:
        raise ValueError(f"the sources ended within the warm-up of {warm_s} s")
    unit = WORDS_PER_SENTENCE if order.workload == "wordcount" else 1
    if order.workload == "wordcount":
        lost, duplicated = audit(order.workload, emitted, [sink])
    else:
        lost, duplicated = unordered_audit(sum(emitted), sink)
    values_ms = [
        (arrived_ns - due_ns) / 1e6
        for path in paths
        for due_ns, arrived_ns in _latencies(path.with_suffix(".latencies"))
        if due_ns >= begin_ns
    ]
    return Measured(
        rate_within([sink], begin_ns, end_ns) / unit,
        lost,
        duplicated,
        processes,
        percentiles(values_ms),
        saturated=sum(emitted) < order.planned,
    )


def merged(sinks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several sinks as one: the totals added, of every word the highest count."""
    steps: list[tuple[int, int]] = []
    latest: Counter[str] = Counter()
    seen: Counter[int] = Counter()
    for sink in sinks:
        before = 0
        for at_ns, total in sink["samples"]:
            steps.append((at_ns, total - before))
            before = total
        latest |= Counter(sink.get("latest", {}))
        seen.update(dict(enumerate(sink.get("seen", ()))))
    samples, total = [], 0
    for at_ns, more in sorted(steps):
        total += more
        samples.append((at_ns, total))
    strangers = sum(sink.get("strangers", 0) for sink in sinks)
    return {
        "total": total,
        "samples": samples,
        "latest": latest,
        "seen": seen,
        "strangers": strangers,
    }


def unordered_audit(emitted: int, sink: dict[str, Any]) -> tuple[int, int]:
    """What the chain lost and what it duplicated, when records may overtake each other.

    A record that nobody sent is one that was lost and another that is too much.
    """
    rounds, rest = divmod(emitted, POOL)
    expected = Counter({number: rounds + (number < rest) for number in range(POOL)})
    lost, more = (expected - sink["seen"]).total(), (sink["seen"] - expected).total()
    return lost, more + sink["strangers"]


def _latencies(path: Path) -> Iterator[tuple[int, int]]:
    """(due, arrived) of every record that a sink took."""
    both = array("q")
    both.frombytes(path.read_bytes())
    half = len(both) // 2
    return zip(both[:half], both[half:], strict=True)
