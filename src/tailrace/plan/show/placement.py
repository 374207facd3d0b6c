"""What runs where, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.graph.wiring import Wiring


def who_runs_where(
    wiring: Wiring,
    placement: Sequence[int],
    workers: int,
    ways: Mapping[int, Mapping[int, str]] | None = None,
) -> str:
    """The streams with their groupings, then each worker with its chains and its ways to others.

    Operators joined by `+` run fused. `ways` (by worker, then by the other worker) are known once
    the workers have met.
    """
    graph = wiring.graph
    lines = [graph.name]
    lines += [f"  {stream.label} ({stream.grouping.rule.value})" for stream in graph.streams]
    for worker in range(workers):
        lines.append(f"worker {worker}{_ways(ways.get(worker, {}) if ways else {})}")
        for instance, home in enumerate(placement):
            if home == worker:
                chain = wiring.chain_of(instance)
                copy = f" ({instance - chain.first + 1} of {chain.parallelism})"
                lines.append(f"  {chain.label}{copy if chain.parallelism > 1 else ''}")
    return "\n".join(lines)


def _ways(ways: Mapping[int, str]) -> str:
    """The ways of one worker: `: ring to 1 2, tcp to 3`."""
    peers: dict[str, list[str]] = {}
    for peer, way in sorted(ways.items()):
        peers.setdefault(way, []).append(str(peer))
    text = ", ".join(f"{way} to {' '.join(others)}" for way, others in peers.items())
    return f": {text}" if text else ""
