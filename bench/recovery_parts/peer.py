"""Bytewax with its recovery store beside Tailrace: what snapshots cost it, and a kill -9."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from harness.process import Peer, PeerError, hear
from harness.spread import rounded
from peer_systems.feed import Order
from peer_systems.install import python_of, why_missing
from peer_systems.told import measured
from recovery_parts.jobs import EPOCH_S, KILL_EVERY_S, RECEIVER, made

BENCH = Path(__file__).parents[1]
BATCH = 64
_PATIENCE_S = 60.0
_WARM_S = 0.5
SLOWER = 4
"""So many times as long its records go on: it takes seconds to be there again."""


@dataclass(frozen=True)
class BytewaxFound:
    """What was measured."""

    ratios: list[float]
    new_ms: list[float]
    first_ms: list[float]
    repeated: int
    """Results that came again."""

    def headline(self) -> dict[str, Any]:
        """For the last line."""
        return {
            "throughput_with_checkpoints_ratio": rounded(median(self.ratios)),
            "kill_to_first_result_ms": {
                "median": rounded(median(self.new_ms)) if self.new_ms else None,
                "max": rounded(max(self.new_ms)) if self.new_ms else None,
            },
            "kills": len(self.new_ms),
            "results_sent_again": self.repeated,
        }


def beside(folder: Path, keys: int, plan: Any, say: Callable[[str], None]) -> BytewaxFound:
    """Everything; PeerError if it is not installed or fails."""
    if problem := why_missing("bytewax"):
        raise PeerError(problem)
    folder.mkdir()
    ratios = []
    for number in range(plan.rounds):
        rates = {}
        for recovers in sorted((True, False), reverse=bool(number % 2)):
            rates[recovers] = _rate(folder / f"words-{number}-{recovers}", plan.seconds, recovers)
        ratios.append(rates[True] / rates[False])
    say("Bytewax is killed")
    new_ms, first_ms, repeated = _kills(folder, keys, plan.kills)
    return BytewaxFound(ratios, new_ms, first_ms, repeated)


def _program(folder: Path, *arguments: str) -> Peer:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**ours, "PYTHONPATH": str(BENCH), "TMPDIR": str(folder)}
    command = [str(python_of("bytewax")), "-m", "recovery_parts.bytewax_job", *arguments]
    return Peer(command, folder, environment)


def _rate(folder: Path, seconds: float, recovers: bool) -> float:
    folder.mkdir()
    order = Order("wordcount", seconds, 0, str(folder))
    store = folder / "store" if recovers else ""
    peer = _program(folder, "words", order.to_json(), str(BATCH), str(EPOCH_S), str(store))
    try:
        hear(peer, timeout_s=seconds + _PATIENCE_S)
    finally:
        peer.end()
    return measured(order, min(_WARM_S, seconds / 3), 1).rate_per_s


def _kills(folder: Path, keys: int, count: int) -> tuple[list[float], list[float], int]:
    chance = random.Random(1)
    arrivals = made(folder / "due", keys, 5.0 + count * KILL_EVERY_S * SLOWER, keys)
    receiver = Peer([sys.executable, str(RECEIVER), str(arrivals.total)], folder)
    store = folder / "store"
    struck: list[tuple[int, int]] = []
    try:
        port = hear(receiver)[0]["port"]

        def start() -> Peer:
            told = json.dumps(asdict(arrivals))
            return _program(folder, "keys", told, str(BATCH), str(EPOCH_S), str(store), str(port))

        peer = start()
        while len(struck) < count:
            hear(peer, timeout_s=_PATIENCE_S)  # it has results of records at a rate
            time.sleep(EPOCH_S * (1 + chance.random()))
            at_ns, pid = time.monotonic_ns(), peer.pid
            peer.kill()
            struck.append((at_ns, pid))
            peer.end()
            peer = start()
        hear(peer, timeout_s=_PATIENCE_S)
        time.sleep(EPOCH_S)
        senders = receiver.ask("done")["senders"]
        peer.end()
    finally:
        receiver.end()
    new_ms, first_ms = [], []
    for at_ns, _ in struck:
        after = [one for one in senders if one["came_ns"] >= at_ns and one["first_new_ns"]]
        if after:
            new_ms.append((after[0]["first_new_ns"] - at_ns) / 1e6)
            first_ms.append((after[0]["first_ns"] - at_ns) / 1e6)
    return new_ms, first_ms, sum(one["results"] - one["new"] for one in senders)
