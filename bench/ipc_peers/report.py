"""Turns results into the printed table, the headline and the JSON file."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from harness.spread import Spread, short
from ipc_peers.results import Point, Results, Variant

HEADLINES = {
    "10kb_3k": Point(10 << 10, 3_000),
    "40kb_10k": Point(40 << 10, 10_000),
    "320kb_100": Point(320 << 10, 100),
}
# Named in the headline -> the variants it is the best of.
FAMILIES = {
    "ring": ("ring_copy", "ring_view", "ring_drain", "ring_batch"),
    "ring_single": ("ring_copy", "ring_view", "ring_drain"),
    "ring_copy": ("ring_copy",),
    "ring_view": ("ring_view",),
    "netty": ("netty_flush", "netty_batch"),
    "zmq": ("zmq",),
    "pipe": ("pipe",),
    "uds": ("uds",),
}
RIVALS = ("netty", "zmq", "pipe", "uds")


def table(results: Results, variants: Sequence[Variant]) -> str:
    """Return everything that was measured as text, one block per point."""
    lines = []
    for point in dict.fromkeys(point for point, _ in results.latencies):
        head = f"{'us: mean (min..max of rounds)':>34} {'from send':>9} {'p50':>8} {'p99':>8}"
        lines += ["", f"{point.label:<40}{head} {'n':>7} {'got/s':>7}"]
        for variant in variants:
            if at := results.latency(point, variant):
                from_send = short(at.mean_from_send_us.median)
                lines.append(
                    f"  {variant.label:<38}{at.mean_us!s:>34} {from_send:>9}"
                    f" {short(at.p50_us.median):>8} {short(at.p99_us.median):>8} {at.messages:>7}"
                    f" {short(at.achieved_per_s.median):>7}{' saturated' * at.saturated}"
                )
    if results.rates:
        head = f"{'msg/s: median (min..max of rounds)':>38} {'CPU us/msg: send + receive':>28}"
        lines += ["", f"{'100 B at full speed':<40}{head} {'n':>10}"]
    for variant in variants:
        if fast := results.rate(variant):
            cpu = f"{fast.send_cpu_us.median:.2f} + {fast.receive_cpu_us.median:.2f}"
            lines.append(f"  {variant.label:<38}{fast.per_s!s:>38} {cpu:>28} {fast.messages:>10}")
    if results.idle_cpu_percent is not None:
        lines += ["", f"Waiting ring consumer: {results.idle_cpu_percent:.2f}% of one core"]
    if results.background_cpu_percent is not None:
        background = f"{results.background_cpu_percent:.0f}% of the machine"
        lines.append(f"Other programs, at the start of this run: {background}")
    lines += ["", *(f"Not measured: {name}: {why}" for name, why in results.missing.items())]
    return "\n".join(lines)


def headline(results: Results, variants: Sequence[Variant], elapsed_s: float) -> dict[str, Any]:
    """Return the figures that matter most, one flat key each, None where nothing was measured.

    Of several ways to use one transport the best counts, for the ring as for Netty; `best` names
    it. Ratios are quotients of the reported medians, ring to rival: above 1 is better for rates,
    below 1 for latencies.
    """
    figures: dict[str, Any] = {}
    best: dict[str, str] = {}
    spread: dict[str, list[float]] = {}
    p50: dict[str, float] = {}
    saturated: list[str] = []

    def put(key: str, found: list[tuple[str, Spread]], largest: bool) -> None:
        figures[key] = None
        if found:
            sign = -1 if largest else 1
            name, value = min(found, key=lambda item: sign * item[1].median)
            figures[key] = rounded(value.median)
            spread[key] = [rounded(value.low), rounded(value.high)]
            if len(found) > 1:
                best[key] = name

    for family, keys in FAMILIES.items():
        members = [variant for variant in variants if variant.key in keys]
        rates = [(member.key, results.rate(member)) for member in members]
        put(f"{family}_100b_msgs_per_s", [(key, at.per_s) for key, at in rates if at], True)
        for name, point in HEADLINES.items():
            key = f"{family}_{name}_mean_us"
            at_point = {member.key: results.latency(point, member) for member in members}
            put(key, [(member, at.mean_us) for member, at in at_point.items() if at], False)
            chosen = at_point.get(best.get(key, members[0].key)) if members else None
            if chosen:
                p50[f"{family}_{name}"] = rounded(chosen.p50_us.median)
                if chosen.saturated:
                    saturated.append(f"{family}_{name}")

    ratios = {}
    for rival in RIVALS:
        for name in ("100b_msgs_per_s", *(f"{name}_mean_us" for name in HEADLINES)):
            ours, theirs = figures[f"ring_{name}"], figures[f"{rival}_{name}"]
            if ours and theirs:
                ratios[f"ring_to_{rival}_{name.removesuffix('_msgs_per_s')}"] = round(
                    ours / theirs, 4
                )
    idle, background = results.idle_cpu_percent, results.background_cpu_percent
    return figures | {
        "idle_cpu_percent": None if idle is None else round(idle, 3),
        "background_cpu_percent": None if background is None else round(background, 1),
        "ratios": ratios,
        "spread": spread,
        "p50_us": p50,
        "best": best,
        "saturated": saturated,
        "missing": results.missing,
        "rounds": results.rounds,
        "elapsed_s": round(elapsed_s, 1),
    }


def rounded(value: float) -> float:
    """Drop digits that mean nothing."""
    return round(value) if value >= 1_000 else round(value, 1)


def document(
    results: Results, variants: Sequence[Variant], figures: dict[str, Any]
) -> dict[str, Any]:
    """Return everything for the JSON file: the machine, each point, the headline."""
    points = []
    for point, variant in results.latencies:
        if at := results.latency(point, variant):
            points.append({"transport": variant.key, **asdict(point), **asdict(at)})
    rates = [
        {"transport": variant.key, **asdict(fast)}
        for variant in variants
        if (fast := results.rate(variant))
    ]
    machine = {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }
    return {"machine": machine, "latency": points, "rate_100b": rates, "headline": figures}
