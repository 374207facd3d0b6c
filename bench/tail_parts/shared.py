"""One source, one operator: queues of their own, one that is shared, and what theory expects.

As in 5.1.2 of Du's thesis: service rate 450/s, utilisation 78%; a record takes an exponential time,
in which its worker sleeps. Workers here have one thread each, so the four servers are four workers
(the thesis has four executors in a worker). The full run also has utilisations from 30 to 90%
(figure 5.6). `predicted` are M/M/1 and M/M/c for the service time that was measured: a shuffle in
turn is better than M/M/1, since arrivals at a server are more even.
"""

from __future__ import annotations

import random
import time
from math import factorial
from pathlib import Path
from statistics import fmean
from typing import Any

import tailrace as tr
from harness.spread import rounded
from tail_parts.stage import Arriving, Noted, Stage, audit, in_turns, notes_in, ship, summed_up

SERVERS = 4
SERVICE_MS = 1000 / 450
UTILISATION = 0.78
FIGURE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_OVERSLEEPS_S = 0.00008
MODES = ("off", "shared", "balance", "auto")


def served(record: tuple[int, int]) -> tuple[int, int, int, int]:
    """Take a time that follows from the record's number."""
    begun_ns = time.monotonic_ns()
    service_s = random.Random(record[0]).expovariate(1000 / SERVICE_MS)
    if service_s > _OVERSLEEPS_S:
        time.sleep(service_s - _OVERSLEEPS_S)
    while (now_ns := time.monotonic_ns()) - begun_ns < service_s * 1e9:
        pass
    return (*record, begun_ns, now_ns)


def topology(rate_per_s: float, folder: Path) -> tr.Topology:
    """Source -> serve and sink."""
    made = tr.Topology("shared queue")
    arriving = made.source(Arriving(rate_per_s, seed=1), name="arriving").shuffle()
    arriving.map(served, name="serve", parallelism=SERVERS).sink(Noted(folder), parallelism=SERVERS)
    return made


def mm1_wait_ms(service_ms: float, utilisation: float) -> float:
    """The mean wait for one server."""
    return service_ms * utilisation / (1 - utilisation)


def mmc_wait_ms(servers: int, service_ms: float, utilisation: float) -> float:
    """The mean wait for several servers with one queue: Erlang's C formula."""
    offered = servers * utilisation
    last = offered**servers / factorial(servers) / (1 - utilisation)
    waits = last / (sum(offered**k / factorial(k) for k in range(servers)) + last)
    return waits * service_ms / servers / (1 - utilisation)


def at(
    stage: Stage, utilisation: float, rounds: int, slice_s: float, quick: bool
) -> dict[str, Any]:
    """All contestants at one utilisation."""
    folder = stage.folder / f"shared-{utilisation}"
    folder.mkdir()
    rate_per_s = utilisation * SERVERS * 1000 / SERVICE_MS
    slices = in_turns(
        stage,
        topology(rate_per_s, folder),
        MODES,
        rounds=rounds,
        slice_s=slice_s,
        settle_s=0.15 if quick else 0.5,
        placement=(0, *range(1, SERVERS + 1)),
        quick=quick,
    )
    notes = notes_in(folder)
    lost, duplicated = audit(notes)
    found: dict[str, Any] = {"utilisation": utilisation, "lost": lost, "duplicated": duplicated}
    found["auto_chose"] = slices.chose
    services = [one for turn in slices.services_ms(notes, "shared") for one in turn]
    service_ms = fmean(services)
    real = rate_per_s * service_ms / 1000 / SERVERS
    for mode in MODES:
        found[mode] = summed_up(slices.latencies_ms(notes, mode))
        waits = [one for turn in slices.waits_ms(notes, mode) for one in turn]
        found[mode]["mean_wait"] = rounded(fmean(waits))
    found["service_ms"], found["measured_utilisation"] = rounded(service_ms), rounded(real)
    found["predicted"] = {
        "mm1_mean_wait": rounded(mm1_wait_ms(service_ms, real)) if real < 1 else None,
        "mmc_mean_wait": rounded(mmc_wait_ms(SERVERS, service_ms, real)) if real < 1 else None,
    }
    for percent in ("p90", "p99", "p99.9"):
        change = 100 * (found["shared"][percent] / found["off"][percent] - 1)
        found[f"{percent}_change_percent"] = rounded_change(change)
    return found


def rounded_change(percent: float) -> float:
    """With one digit behind the point."""
    return round(percent, 1)


def run(stage: Stage, quick: bool) -> dict[str, Any]:
    """The section's figures."""
    ship(__name__)
    stage.say(f"shared: {UTILISATION:.0%}")
    found = at(stage, UTILISATION, *((5, 0.4) if quick else (10, 4.0)), quick)
    if not quick:
        found["figure_5_6"] = []
        for utilisation in FIGURE:
            stage.say(f"shared: {utilisation:.0%}")
            found["figure_5_6"].append(at(stage, utilisation, 8, 3.0, quick))
    return found


def table(found: dict[str, Any]) -> str:
    """As text."""
    lines = []
    for one in (found, *found.get("figure_5_6", [])):
        lines.append(
            f"shared queue at {one['utilisation']:.0%} (measured {one['measured_utilisation']:.1%},"
            f" service {one['service_ms']} ms); predicted wait: M/M/1"
            f" {one['predicted']['mm1_mean_wait']}, M/M/{SERVERS}"
            f" {one['predicted']['mmc_mean_wait']} ms"
        )
        lines += [
            f"  {mode:8} wait {one[mode]['mean_wait']:>6} ms  p90 {one[mode]['p90']:>6}  p99"
            f" {one[mode]['p99']:>6} {one[mode]['p99_spread']}  p99.9 {one[mode]['p99.9']:>6}"
            f"  of {one[mode]['records']}"
            for mode in MODES
        ]
    return "\n".join(lines)
