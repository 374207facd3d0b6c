"""Draws the benchmark's figure: per workload the maximum rate, and the latency at each rate."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from harness.spread import short
from peer_systems.results import PERCENTILES, RATES_PER_S, TAILRACE, WORKLOADS, Results

SHADES = dict(zip(PERCENTILES, ("#9ecae1", "#4292c6", "#084594"), strict=True))


def draw(results: Results, path: Path) -> None:
    """Write the figure as a PNG."""
    figure, axes = plt.subplots(2, 3, figsize=(17, 9), layout="constrained")
    systems = [system for system in results.labels if system not in results.missing]
    for row, (workload, unit) in zip(axes, WORKLOADS.items(), strict=True):
        _rates(row[0], results, systems, workload, unit)
        for axis, rate in zip(row[1:], RATES_PER_S, strict=True):
            _latencies(axis, results, systems, workload, rate)
            axis.set_title(f"{workload}: latency at {rate:,} {unit}/s")
    handles = [plt.Line2D([], [], ls="", marker="o", color=SHADES[name]) for name in PERCENTILES]
    figure.legend(handles, PERCENTILES, loc="outside lower right", ncols=len(PERCENTILES))
    figure.suptitle("One run on one machine: median of the rounds, bars from lowest to highest")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _rates(axis: Any, results: Results, systems: list[str], workload: str, unit: str) -> None:
    for place, system in enumerate(systems):
        if rate := results.rate(system, workload):
            error = [[rate.median - rate.low], [rate.high - rate.median]]
            color = "#d95f02" if system == TAILRACE else "#8c8c8c"
            axis.errorbar(rate.median, place, xerr=error, fmt="o", ms=8, color=color)
            axis.annotate(f"  {short(rate.median)}", (rate.high, place), va="center")
    _systems(axis, results, systems)
    axis.set(title=f"{workload}: maximum rate", xlabel=f"{unit}/s", xscale="log")


def _latencies(axis: Any, results: Results, systems: list[str], workload: str, rate: int) -> None:
    for place, system in enumerate(systems):
        if results.too_fast(system, workload, rate):
            axis.text(0.02, place, "more than it takes", transform=axis.get_yaxis_transform())
        for offset, percentile in zip((-0.25, 0.0, 0.25), PERCENTILES, strict=True):
            if ms := results.latency_ms(system, workload, rate, percentile):
                error = [[ms.median - ms.low], [ms.high - ms.median]]
                axis.errorbar(
                    ms.median, place + offset, xerr=error, fmt="o", ms=5, color=SHADES[percentile]
                )
    _systems(axis, results, systems)
    axis.set(xlabel="ms", xscale="log")


def _systems(axis: Any, results: Results, systems: list[str]) -> None:
    axis.set_yticks(range(len(systems)), [results.labels[system] for system in systems])
    axis.set_ylim(len(systems) - 0.5, -0.5)
    axis.margins(x=0.25)
    axis.grid(True, axis="x", alpha=0.3)
