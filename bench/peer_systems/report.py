"""Turns results into the printed table, the headline and the JSON file."""

from dataclasses import asdict
from typing import Any

from harness.frame import machine
from harness.spread import cell, limits, middle, rounded
from peer_systems.results import (
    PERCENTILES,
    RATES_PER_S,
    TAILRACE,
    WORKLOADS,
    Results,
    processes,
)


def table(results: Results) -> str:
    """Everything that was measured: median (lowest..highest of the rounds)."""
    lines = ["", "median (lowest..highest of the rounds); ratios are to Tailrace, round by round"]
    for workload, unit in WORKLOADS.items():
        head = f"{unit + '/s':>30}{'to Tailrace':>24}{'processes':>11}{'lost':>6}{'twice':>7}"
        lines += ["", f"{workload + ', at full speed':<26}{head}"]
        for system, label in results.labels.items():
            if every := results.every(system, workload):
                lines.append(
                    f"  {label:<24}{cell(results.rate(system, workload)):>30}"
                    f"{cell(results.rate_ratio(system, workload)):>24}{processes(every):>11}"
                    f"{sum(run.lost for run in every):>6}{sum(run.duplicated for run in every):>7}"
                )
        for rate in RATES_PER_S:
            lines += ["", _latency_head(f"{workload}, {rate:,} {unit}/s")]
            lines += _latency_rows(results, workload, rate)
    lines += ["", *(f"Not measured: {name}: {why}" for name, why in results.missing.items())]
    return "\n".join(lines)


def _latency_head(title: str) -> str:
    return (
        f"{title:<26}"
        + "".join(f"{name + ', ms':>26}" for name in PERCENTILES)
        + f"{'p99 to Tailrace':>24}"
    )


def _latency_rows(results: Results, workload: str, rate: int) -> list[str]:
    rows = []
    for system, label in results.labels.items():
        if results.too_fast(system, workload, rate):
            rows.append(f"  {label:<24}{'more than it takes':>26}")
        elif results.of(system, workload, rate):
            spreads = (results.latency_ms(system, workload, rate, name) for name in PERCENTILES)
            ratio = results.latency_ratio(system, workload, rate, "p99")
            text = "".join(f"{cell(spread):>26}" for spread in spreads)
            rows.append(f"  {label:<24}{text}{cell(ratio):>24}")
    return rows


def headline(results: Results, elapsed_s: float) -> dict[str, Any]:
    """By system and workload: the figures, and their ratios to Tailrace with their range."""
    return {
        "systems": {
            system: {workload: _figures(results, system, workload) for workload in WORKLOADS}
            for system in results.labels
            if system not in results.missing
        },
        "missing": results.missing,
        "rounds": results.rounds,
        "background_cpu_percent": rounded(results.background_cpu_percent),
        "elapsed_s": rounded(elapsed_s),
    }


def _figures(results: Results, system: str, workload: str) -> dict[str, Any]:
    every = results.every(system, workload)
    rate = results.rate(system, workload)
    figures: dict[str, Any] = {
        "max_per_s": middle(rate),
        "max_per_s_range": limits(rate),
        "processes": processes(every),
        "lost": sum(run.lost for run in every),
        "duplicated": sum(run.duplicated for run in every),
        "tuning": results.best_tuning(system, workload),
    }
    ratios = {"max": results.rate_ratio(system, workload)}
    for asked in RATES_PER_S:
        name = f"{asked // 1_000}k"
        for percentile in PERCENTILES:
            key = f"{percentile.replace('.', '')}_{name}"
            spread = results.latency_ms(system, workload, asked, percentile)
            figures[f"{key}_ms"] = middle(spread)
            figures[f"{key}_ms_range"] = limits(spread)
            ratios[key] = results.latency_ratio(system, workload, asked, percentile)
        figures[f"saturated_{name}"] = results.too_fast(system, workload, asked)
    if system != TAILRACE:
        figures["to_tailrace"] = {
            key: None if spread is None else [middle(spread), *(limits(spread) or ())]
            for key, spread in ratios.items()
        }
    return figures


def document(results: Results, figures: dict[str, Any]) -> dict[str, Any]:
    """Everything, for the file."""
    return {
        "headline": figures,
        "machine": machine(),
        "runs": [
            {"system": system, "workload": workload, "rate_per_s": rate or "full speed"}
            | {"rounds": {number: asdict(run) for number, run in rounds.items()}}
            for (system, workload, rate), rounds in results.runs.items()
        ],
        "trials": [
            {"system": system, "workload": workload, "tuning": tuning, **asdict(run)}
            for (system, workload, tuning), run in results.trials.items()
        ],
    }
