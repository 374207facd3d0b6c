"""What bench/tail.py makes of what it has measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tail_parts import chooser, yahoo
from tail_parts.replay import interval


def dealt(off: float, balance: float, shared: float, auto: float) -> dict[str, Any]:
    found: dict[str, Any] = {"auto_chose": "balance"}
    for mode, p99 in (("off", off), ("balance", balance), ("shared", shared), ("auto", auto)):
        found[mode] = {"p99": p99}
    return found


def replayed(default: float, adaptive: float, auto: float) -> dict[str, Any]:
    found: dict[str, Any] = {"auto_chose": "replay"}
    for way, p99 in (("default", default), ("adaptive", adaptive), ("auto", auto)):
        found[way] = {"p99_ms": p99}
    return found


def test_auto_is_held_against_the_best_and_against_nothing_where_nothing_helps() -> None:
    found = {
        "shared": {**dealt(20.0, 12.0, 10.0, 10.5), "utilisation": 0.78},
        "balance": {name: dealt(9.0, 6.0, 8.0, 9.0) for name in "abc"},
        "replay": {
            "quiet": replayed(2.0, 1.95, 2.08),
            "stopped_beside_sources": replayed(11.0, 2.0, 2.0),
        },
    }
    told = chooser.compared(found)
    assert told["of"] == 6 and told["within_expected"] == 3
    assert told["worst_over_best"] == 1.5
    assert told["scenarios"]["shared_78_percent"]["best"] == "shared"
    assert [name for name, one in told["scenarios"].items() if one["none_helps"]] == [
        "replay_quiet"
    ]
    assert told["worst_over_default_where_none_helps"] == 1.04


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
