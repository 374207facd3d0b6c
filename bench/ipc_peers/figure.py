"""Draws the benchmark's figure: the paper's three panels, and the small messages beside them."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter

from ipc_peers.results import DEFAULT_RING_BYTES, Point, Results, Variant

RING_SIZE_RATE = 3_000
COLORS = {
    "ring_copy": "#0b5fa5",
    "ring_view": "#45b0e6",
    "ring_drain": "#083a66",
    "ring_batch": "#2b8c8c",
    "netty_flush": "#d1495b",
    "netty_batch": "#8d1f2e",
    "pipe": "#7a7a7a",
    "uds": "#b0a160",
    "zmq": "#5a9a57",
}


def draw(results: Results, variants: Sequence[Variant], path: Path) -> None:
    """Write the figure as a PNG."""
    points = list(dict.fromkeys(point for point, _ in results.latencies))
    default = [point for point in points if point.ring_bytes == DEFAULT_RING_BYTES]
    figure, axes = plt.subplots(2, 3, figsize=(16, 9), layout="constrained")
    by_size = [point for point in default if point.rate_per_s == 100]
    _latency(
        axes[0][0],
        results,
        variants,
        by_size,
        lambda point: point.size_bytes / 1024,
        ("(a) message size, at 100 msg/s", "message size [KB]"),
    )
    for axis, size_kb in ((axes[0][1], 10), (axes[0][2], 40)):
        by_rate = [point for point in default if point.size_bytes == size_kb << 10]
        _latency(
            axis,
            results,
            variants,
            by_rate,
            lambda point: float(point.rate_per_s),
            (f"(b) rate, {size_kb} KB messages", "messages/s"),
        )
    _ring_size(axes[1][0], results, variants, points)
    fast = [variant for variant in variants if results.rate(variant)]
    _rate(axes[1][1], results, fast)
    _cpu(axes[1][2], results, fast)
    handles, labels = axes[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.suptitle(
        "Messages between two processes of one node: median of the rounds, bars from min to max"
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _latency(
    axis: Any,
    results: Results,
    variants: Sequence[Variant],
    points: Sequence[Point],
    at: Callable[[Point], float],
    titles: tuple[str, str],
) -> None:
    """Plot mean latency against whatever `at` takes from the point; hollow where saturated."""
    for variant in variants:
        found = [(at(point), here) for point in points if (here := results.latency(point, variant))]
        if not found:
            continue
        found.sort(key=lambda item: item[0])
        x = [item[0] for item in found]
        y = [item[1].mean_us for item in found]
        errors = [[mean.median - mean.low for mean in y], [mean.high - mean.median for mean in y]]
        color = COLORS[variant.key]
        means = [mean.median for mean in y]
        axis.errorbar(x, means, errors, color=color, label=variant.label, lw=1.4, elinewidth=0.6)
        fills = ["white" if item[1].saturated else color for item in found]
        axis.scatter(x, means, s=22, c=fills, edgecolors=color, zorder=3)
    _scales(axis, sorted({at(point) for point in points}))
    axis.set(title=titles[0], xlabel=titles[1], ylabel="mean latency [us]")


def _ring_size(
    axis: Any, results: Results, variants: Sequence[Variant], points: Sequence[Point]
) -> None:
    ticks: set[float] = set()
    for size_kb, style in ((10, "--"), (40, "-")):
        chosen = [
            point
            for point in points
            if point.size_bytes == size_kb << 10 and point.rate_per_s == RING_SIZE_RATE
        ]
        for variant in variants:
            if variant.peer != "ring":
                continue
            found = sorted(
                (point.ring_bytes / point.size_bytes, at.mean_us.median)
                for point in chosen
                if (at := results.latency(point, variant))
            )
            if len(found) > 1:
                ticks.update(round(x, 1) for x, _ in found)
                label = f"{variant.label}, {size_kb} KB"
                x, y = zip(*found, strict=True)
                axis.plot(x, y, style, marker="o", ms=4, color=COLORS[variant.key], label=label)
    if ticks:
        axis.legend(fontsize=8)
    _scales(axis, sorted(ticks))
    title = f"(c) ring size, at {RING_SIZE_RATE:,} msg/s"
    axis.set(title=title, xlabel="ring size / message size", ylabel="mean latency [us]")


def _scales(axis: Any, ticks: Sequence[float]) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(ticks, [f"{tick:,g}" for tick in ticks], rotation=45 if len(ticks) > 6 else 0)
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    if ticks:
        low, high = axis.get_ylim()
        axis.set_ylim(10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)))
    else:
        axis.set(xticks=[], yticks=[])
        axis.text(0.5, 0.5, "not measured in this run", transform=axis.transAxes, ha="center")
    axis.grid(True, which="major", alpha=0.3)


def _rate(axis: Any, results: Results, variants: Sequence[Variant]) -> None:
    for row, variant in enumerate(variants):
        if at := results.rate(variant):
            error = [[at.per_s.median - at.per_s.low], [at.per_s.high - at.per_s.median]]
            color = COLORS[variant.key]
            axis.barh(row, at.per_s.median, xerr=error, color=color, error_kw={"elinewidth": 0.8})
            axis.annotate(f" {at.per_s.median / 1e6:.2f} M/s", (at.per_s.high, row), va="center")
    axis.set_yticks(range(len(variants)), [variant.label for variant in variants])
    axis.invert_yaxis()
    axis.margins(x=0.3)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:g} M"))
    axis.set(title="(d) 100 B messages at full speed", xlabel="messages/s")


def _cpu(axis: Any, results: Results, variants: Sequence[Variant]) -> None:
    for row, variant in enumerate(variants):
        if at := results.rate(variant):
            send, receive = at.send_cpu_us.median, at.receive_cpu_us.median
            color = COLORS[variant.key]
            axis.barh(row, send, color=color)
            axis.barh(row, receive, left=send, color=color, alpha=0.5)
            axis.annotate(f" {send:.2f} + {receive:.2f}", (send + receive, row), va="center")
    axis.set_yticks(range(len(variants)), [variant.label for variant in variants])
    axis.invert_yaxis()
    axis.margins(x=0.35)
    axis.set(title="(d) CPU per 100 B message: send + receive", xlabel="CPU us/message")
