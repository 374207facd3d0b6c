"""Turns results into the printed table, the headline and the JSON file."""

from dataclasses import asdict
from statistics import median
from typing import Any

from engine_peers.results import Results
from engine_peers.workloads import Outcome
from harness.frame import machine
from harness.spread import cell, limits, middle, rounded, short

_PERCENTILES = {"p50": "p50", "p99": "p99", "p99.9": "p999"}


def table(results: Results) -> str:
    """Everything that was measured, as text."""
    lines = ["", f"{'median (min..max of rounds)':<44}{'per second':>34}{'CPU us':>10}"]
    rows: list[tuple[str, int, list[Outcome]]] = [
        (f"Tailrace {workload}", rate, outcomes)
        for (workload, rate), outcomes in results.tailrace.items()
    ]
    rows += [(v.label, rate, outcomes) for (v, rate), outcomes in results.handmade.items()]
    rows += [
        (f"Tailrace {workload}, Poisson", rate, outcomes)
        for (workload, rate), outcomes in results.tailrace_poisson.items()
    ]
    rows += [
        (f"{v.label}, Poisson", rate, outcomes)
        for (v, rate), outcomes in results.handmade_poisson.items()
    ]
    rows.sort(key=lambda row: row[1])
    for label, rate, outcomes in rows:
        if rate == 0:
            cpu = median(outcome.cpu_us for outcome in outcomes)
            lines.append(f"{label:<44}{cell(results.rate(outcomes)):>34}{cpu:>10.2f}")
    for variant, outcome in results.trials.items():
        if (variant, 0) not in results.handmade:
            once = f"once: {short(outcome.rate_per_s)}"
            lines.append(f"{variant.label:<44}{once:>34}{outcome.cpu_us:>10.2f}")
    lines += ["", f"{'latency, ms':<64}{'p50':>26}{'p99':>26}{'p99.9':>26}"]
    for label, rate, outcomes in rows:
        if rate:
            cells = "".join(f"{cell(results.latency(outcomes, p)):>26}" for p in _PERCENTILES)
            lines.append(f"{label + f' at {rate:,}/s':<64}{cells}")
    return "\n".join([*lines, ""])


def headline(results: Results, elapsed_s: float) -> dict[str, Any]:
    """The figures that matter most, one flat key each; None where nothing was measured."""
    figures: dict[str, Any] = {}
    for workload, unit in (("wordcount", "sentences"), ("chain", "records")):
        outcomes = results.tailrace.get((workload, 0), [])
        best = results.best_handmade(workload)
        rivals = results.handmade.get((best, 0), [])
        ours, theirs = results.rate(outcomes), results.rate(rivals)
        figures[f"{workload}_{unit}_per_s"] = middle(ours)
        figures[f"{workload}_{unit}_per_s_range"] = limits(ours)
        figures[f"handmade_{workload}_{unit}_per_s"] = middle(theirs)
        figures[f"handmade_{workload}_{unit}_per_s_range"] = limits(theirs)
        figures[f"handmade_{workload}_variant"] = best.label
        ratio = ours.median / theirs.median if ours and theirs else None
        figures[f"{workload}_against_handmade"] = rounded(ratio)
        peak = ours.high / theirs.high if ours and theirs else None
        figures[f"{workload}_best_round_against_handmade"] = rounded(peak)
        figures[f"{workload}_cpu_us"] = _median([o.cpu_us for o in outcomes])
        figures[f"handmade_{workload}_cpu_us"] = _median([o.cpu_us for o in rivals])
        for rate, name in ((10_000, "10k"), (1_000, "1k")):
            paced = results.tailrace.get((workload, rate), [])
            for percentile, key in _PERCENTILES.items():
                spread = results.latency(paced, percentile)
                figures[f"{workload}_{name}_{key}_ms"] = middle(spread)
                if percentile == "p99":
                    figures[f"{workload}_{name}_{key}_ms_range"] = limits(spread)
            figures[f"{workload}_{name}_cpu_us"] = _median([o.cpu_us for o in paced])
            if workload == "chain":
                for percentile in ("p50", "p99"):
                    exact = [o.exact_latency_ms[percentile] for o in paced if o.exact_latency_ms]
                    figures[f"chain_{name}_exact_{percentile}_ms"] = _median(exact)
        rivals = [
            outcome
            for (variant, rate), paced in results.handmade.items()
            for outcome in paced
            if rate and variant.workload == workload
        ]
        for percentile in ("p50", "p99"):
            spread = results.latency(rivals, percentile)
            figures[f"handmade_{workload}_10k_{percentile}_ms"] = middle(spread)
        random = results.tailrace_poisson.get((workload, 10_000), [])
        by_hand = [
            outcome
            for (variant, _), paced in results.handmade_poisson.items()
            for outcome in paced
            if variant.workload == workload
        ]
        for percentile in ("p50", "p99"):
            spread = results.latency(random, percentile)
            figures[f"{workload}_10k_poisson_{percentile}_ms"] = middle(spread)
            spread = results.latency(by_hand, percentile)
            figures[f"handmade_{workload}_10k_poisson_{percentile}_ms"] = middle(spread)
        figures[f"{workload}_10k_poisson_cpu_us"] = _median([o.cpu_us for o in random])
    found = (*results.tailrace.values(), *results.tailrace_poisson.values(), results.discarded)
    every = [outcome for outcomes in found for outcome in outcomes]
    rivals = [outcome for outcomes in results.handmade.values() for outcome in outcomes]
    figures["lost"] = sum(outcome.lost for outcome in every)
    figures["duplicated"] = sum(outcome.duplicated for outcome in every)
    figures["handmade_lost"] = sum(outcome.lost for outcome in rivals)
    figures["handmade_duplicated"] = sum(outcome.duplicated for outcome in rivals)
    figures["idle_cpu_percent"] = rounded(results.idle_cpu_percent)
    figures["spark_start_s"] = rounded(results.spark_start_s)
    figures["first_job_start_s"] = rounded(results.first_job_start_s)
    figures["job_start_s"] = rounded(results.job_start_s)
    figures["rounds"] = results.rounds
    figures["background_cpu_percent"] = rounded(results.background_cpu_percent)
    figures["load_average"] = rounded(results.load_average)
    figures["elapsed_s"] = rounded(elapsed_s)
    return figures


def _median(values: list[float]) -> float | None:
    return rounded(median(values)) if values else None


def document(results: Results, figures: dict[str, Any]) -> dict[str, Any]:
    """Everything, for the file."""
    return {
        "headline": figures,
        "machine": machine(),
        "tailrace": [
            {"workload": workload, "rate_per_s": rate, "rounds": [asdict(o) for o in outcomes]}
            for (workload, rate), outcomes in results.tailrace.items()
        ],
        "handmade": [
            {"variant": v.label, "rate_per_s": rate, "rounds": [asdict(o) for o in outcomes]}
            for (v, rate), outcomes in results.handmade.items()
        ],
        "tailrace_poisson": [
            {"workload": workload, "rate_per_s": rate, "rounds": [asdict(o) for o in outcomes]}
            for (workload, rate), outcomes in results.tailrace_poisson.items()
        ],
        "handmade_poisson": [
            {"variant": v.label, "rate_per_s": rate, "rounds": [asdict(o) for o in outcomes]}
            for (v, rate), outcomes in results.handmade_poisson.items()
        ],
        "trials": [
            {"variant": variant.label, **asdict(outcome)}
            for variant, outcome in results.trials.items()
        ],
    }
