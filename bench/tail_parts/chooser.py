"""How good auto is beside the best single technique, and beside nothing where nothing helps.

No measurement of its own: auto has taken turns with the others in `shared`, `balance` and `replay`.
`over_best` is its p99 over that of the best technique that has run beside it, `over_default` over
that of doing nothing; `none_helps` says whether no technique was better than nothing by more than
5%. In a quick run p99s are of all rounds but the contestant's worst one: a round has some hundred
records, of which one stall of the machine is more than a hundredth.

The best of several is also the luckiest of them. `over_best_interval` is where the ratio of a round
lies in the middle, with 95% (of five rounds: from the lowest to the highest; None where the best
had a job of its own). Where all of it is above what is expected, auto is `probably_worse`; where
that lies within, the run does not tell.
"""

from __future__ import annotations

from typing import Any

from harness.spread import rounded
from tail_parts.replay import interval

EXPECTED_OVER_BEST, EXPECTED_OVER_DEFAULT = 1.1, 1.05
_HELPS = 0.95
_SINGLES = {"shared": ("shared", "balance"), "balance": ("balance", "shared", "du", "storm")}


def scenarios(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By scenario: what was measured of nothing, of each technique and of auto; what that chose."""
    given: dict[str, dict[str, Any]] = {}
    for one in (found["shared"], *found["shared"].get("figure_5_6", [])):
        name = f"shared_{round(100 * one['utilisation'])}_percent"
        given.setdefault(name, _dealt(one, _SINGLES["shared"]))
    for name in "abc":
        given[f"balance_{name}"] = _dealt(found["balance"][name], _SINGLES["balance"])
    for name in ("quiet", "stopped_beside_sources"):
        one = found["replay"][name]
        ways = {"default": "default", "replay": "adaptive", "auto": "auto"}
        measured = {way: {**one[its], "p99": one[its]["p99_ms"]} for way, its in ways.items()}
        given[f"replay_{name}"] = {**measured, "chose": one["auto_chose"]}
    return given


def _dealt(one: dict[str, Any], modes: tuple[str, ...]) -> dict[str, Any]:
    singles = {mode: one[mode] for mode in modes if mode in one}
    told = {"auto": one["auto"], "chose": one["auto_chose"]}
    return {"default": one["off"], **singles, **told}


def compared(found: dict[str, Any], quick: bool) -> dict[str, Any]:
    """The section's figures, by those of the others."""
    p99 = "p99_calm" if quick else "p99"
    told = {name: _compared(one, p99) for name, one in scenarios(found).items()}
    needless = [one["over_default"] for one in told.values() if one["none_helps"]]
    return {
        "scenarios": told,
        "worst_over_best": max(one["over_best"] for one in told.values()),
        "within_expected": sum(one["over_best"] <= EXPECTED_OVER_BEST for one in told.values()),
        "probably_worse": sum(
            (one["over_best_interval"] or [0])[0] > EXPECTED_OVER_BEST for one in told.values()
        ),
        "of": len(told),
        "worst_over_default_where_none_helps": max(needless, default=None),
    }


def _compared(one: dict[str, Any], which: str) -> dict[str, Any]:
    chose, auto = one.pop("chose"), one["auto"]
    p99 = {way: measured[which] for way, measured in one.items()}
    best = min((way for way in p99 if way != "auto"), key=p99.__getitem__)
    rounds = zip(auto["p99_rounds"], one[best].get("p99_rounds", ()), strict=False)
    each = [mine / its for mine, its in rounds if mine is not None and its is not None]
    return {
        "p99": p99,
        "best": best,
        "over_best": rounded(p99["auto"] / p99[best]),
        "over_best_interval": [rounded(end) for end in interval(each)] if each else None,
        "over_default": rounded(p99["auto"] / p99["default"]),
        "none_helps": p99[best] > _HELPS * p99["default"],
        "chose": chose,
    }


def table(found: dict[str, Any]) -> str:
    """As text."""
    lines = ["auto over the best technique and over nothing, p99"]
    for name, one in found["scenarios"].items():
        lines.append(
            f"  {name:32} {one['over_best']:>5} {one['over_best_interval']} (best: {one['best']}),"
            f" {one['over_default']:>5}  {one['chose'][:150]}"
        )
    return "\n".join(lines)
