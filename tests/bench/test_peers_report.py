"""The table of a comparison shows what was measured, and what was not."""

from peer_systems.report import table
from peer_systems.results import FULL_SPEED, TAILRACE, Results
from peer_systems.told import Measured


def test_a_table_has_rates_latencies_and_those_left_out() -> None:
    results = Results({TAILRACE: "Tailrace", "other": "Other"})
    results.missing["third"] = "not installed"
    fast = Measured(442_159.0, 0, 0, 2)
    paced = Measured(1_000.0, 0, 0, 2, {"p50": 0.0589, "p99": 1.62, "p99.9": 4.39})
    results.runs[TAILRACE, "chain", FULL_SPEED] = {0: fast}
    results.runs[TAILRACE, "chain", 1_000] = {0: paced}
    results.runs["other", "chain", FULL_SPEED] = {0: Measured(500.0, 0, 0, 1)}
    lines = [" ".join(line.split()) for line in table(results).splitlines()]
    assert "Tailrace 442,159 (442,159..442,159) 1 (1..1) 2 0 0" in lines
    assert any(line.startswith("Tailrace 0.0589 (0.0589..0.0589) 1.62") for line in lines)
    assert "Other more than it takes" in lines
    assert "Not measured: third: not installed" in lines
