"""Medians, ratios to Tailrace and what is said of a system that cannot keep up."""

import json
from dataclasses import replace

from peer_systems.report import document, headline, table
from peer_systems.results import Results
from peer_systems.told import Measured

FAST = Measured(1_000.0, 0, 0, 2)


def results() -> Results:
    found = Results({"tailrace": "Tailrace", "other": "Other", "gone": "Gone"})
    for number, (ours, theirs) in enumerate([(1_000, 500), (2_000, 400), (1_000, 300)]):
        found.add("tailrace", "chain", 0, number, replace(FAST, rate_per_s=ours))
        found.add("other", "chain", 0, number, replace(FAST, rate_per_s=theirs, lost=1))
    found.missing["gone"] = "not installed"
    return found


def paced(found: Results, system: str, number: int, p99_ms: float, saturated: bool = False) -> None:
    latency_ms = {"p50": p99_ms / 2, "p99": p99_ms, "p99.9": p99_ms * 2}
    run = replace(FAST, latency_ms=latency_ms, saturated=saturated)
    found.add(system, "chain", 1_000, number, run)


def test_ratios_are_taken_within_a_round() -> None:
    ratio = results().rate_ratio("other", "chain")
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == (0.3, 0.2, 0.5)


def test_a_round_that_only_one_of_both_did_has_no_ratio() -> None:
    found = results()
    paced(found, "tailrace", 0, 2.0)
    paced(found, "other", 0, 10.0)
    paced(found, "tailrace", 1, 1.0)
    found.add("other", "chain", 0, 3, FAST)
    ratio = found.latency_ratio("other", "chain", 1_000, "p99")
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == (5.0, 5.0, 5.0)


def test_a_rate_above_the_maximum_is_not_tried_and_has_no_latency() -> None:
    found = results()
    assert found.too_fast("other", "chain", 1_000)
    assert not found.too_fast("tailrace", "chain", 1_000)
    figures = headline(found, 1.0)["systems"]["other"]["chain"]
    assert figures["saturated_1k"]
    assert figures["p99_1k_ms"] is None
    assert "more than it takes" in table(found)


def test_a_saturated_round_takes_the_latency_away() -> None:
    found = results()
    paced(found, "tailrace", 0, 2.0)
    paced(found, "tailrace", 1, 900.0, saturated=True)
    assert found.latency_ms("tailrace", "chain", 1_000, "p99") is None


def test_the_fastest_tuning_goes_on() -> None:
    found = results()
    for tuning, rate in (("16", 10.0), ("64", 30.0), ("256", 20.0)):
        found.trials["other", "chain", tuning] = replace(FAST, rate_per_s=rate)
    assert found.best_tuning("other", "chain") == "64"


def test_the_headline_has_losses_of_all_runs_and_what_is_missing_and_why() -> None:
    found = results()
    found.trials["other", "chain", "x"] = replace(FAST, lost=4)
    figures = json.loads(json.dumps(headline(found, 1.0)))
    other = figures["systems"]["other"]["chain"]
    assert other["lost"] == 3 + 4
    assert other["max_per_s"] == 400
    assert other["to_tailrace"]["max"] == [0.3, 0.2, 0.5]
    assert "to_tailrace" not in figures["systems"]["tailrace"]["chain"]
    assert figures["missing"] == {"gone": "not installed"}
    assert "Not measured: gone: not installed" in table(found)
    json.dumps(document(found, figures))
