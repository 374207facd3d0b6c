"""What bench/tail.py makes of what it has measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tail_parts import chooser, yahoo
from tail_parts.replay import interval
from tail_parts.stage import summed_up


def measured(p99: float, *, swings: float = 1.0) -> dict[str, Any]:
    """Of a contestant; its rounds go from the p99 divided by `swings` to the p99 times that."""
    rounds = [p99 / swings, p99, None, p99 * swings, p99, p99]
    return {"p99": 99.0, "p99_calm": p99, "p99_rounds": rounds}


def dealt(off: float, balance: float, shared: float, auto: float) -> dict[str, Any]:
    p99s = {"off": off, "balance": balance, "shared": shared, "auto": auto}
    found = {mode: measured(p99, swings=3.0) for mode, p99 in p99s.items()}
    return {**found, "auto_chose": "balance"}


def replayed(default: float, adaptive: float, auto: float) -> dict[str, Any]:
    p99s = {"default": default, "adaptive": adaptive, "auto": auto}
    found = {way: {**measured(p99), "p99_ms": 99.0} for way, p99 in p99s.items()}
    return {**found, "auto_chose": "replay"}


def test_auto_is_held_against_the_best_and_against_nothing_where_nothing_helps() -> None:
    found = {
        "shared": {**dealt(20.0, 12.0, 10.0, 10.5), "utilisation": 0.78},
        "balance": {name: dealt(9.0, 6.0, 8.0, 9.0) for name in "abc"},
        "replay": {
            "quiet": replayed(2.0, 1.95, 2.08),
            "stopped_beside_sources": replayed(11.0, 2.0, 2.0),
        },
    }
    found["balance"]["c"]["auto"] = measured(9.0)
    del found["balance"]["b"]["balance"]["p99_rounds"]  # it had a job of its own
    told = chooser.compared(found, quick=True)
    assert told["of"] == 6 and told["within_expected"] == 3
    assert told["worst_over_best"] == 1.5
    assert told["scenarios"]["shared_78_percent"]["best"] == "shared"
    assert told["scenarios"]["balance_a"]["over_best_interval"] == [1.5, 1.5]
    assert told["scenarios"]["balance_b"]["over_best_interval"] is None
    assert told["scenarios"]["balance_c"]["over_best_interval"] == [0.5, 4.5]
    assert told["probably_worse"] == 1
    assert [name for name, one in told["scenarios"].items() if one["none_helps"]] == [
        "replay_quiet"
    ]
    assert told["worst_over_default_where_none_helps"] == 1.04
    assert chooser.compared(found, quick=False)["within_expected"] == 6


def test_a_stall_in_one_round_does_not_count_where_contestants_are_compared() -> None:
    rounds = [[1.0] * 98 + [2.0] * 2, [1.0] * 80 + [50.0] * 20, [1.0] * 98 + [3.0] * 2]
    told = summed_up(rounds)
    assert told["p99"] == 50.0 and told["p99_calm"] == 3.0
    assert told["p99_rounds"] == [2.0, 50.0, 3.0]
    assert summed_up([*rounds, []])["p99_rounds"] == [2.0, 50.0, 3.0, None]
    assert told["p99_spread"] == [2.0, 3.0, 50.0]
    assert summed_up(rounds[:1])["p99_calm"] == 2.0


@pytest.mark.parametrize(("left_out", "twice"), [((), ()), ((7, 20), (3,))])
def test_what_is_missing_or_twice_at_yahoos_sinks_is_found(
    tmp_path: Path, left_out: tuple[int, ...], twice: tuple[int, ...]
) -> None:
    for name, comes_out in yahoo.OUTPUTS.items():
        numbers = [i for i in range(500) if comes_out(i) and (name, i) not in _of(left_out)]
        numbers += [i for i in twice if name == "interests"]
        (tmp_path / f"{name}-0").write_text("\n".join(map(str, numbers)))
    assert yahoo.audit(tmp_path) == (len(left_out), len(twice))


def _of(numbers: tuple[int, ...]) -> set[tuple[str, int]]:
    return {("interests", i) for i in numbers}


def test_the_interval_of_a_median_leaves_out_what_chance_rarely_reaches() -> None:
    # Of 16 draws, fewer than 4 are below their median in 1.1% of all cases, fewer than 5 in 3.8%.
    assert interval(range(16)) == (3, 12)
    assert interval([5.0]) == (5.0, 5.0)
    low, high = interval(range(101))
    assert (low, high) == (40, 60)
