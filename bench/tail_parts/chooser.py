"""How good auto is beside the best single technique, and beside nothing where nothing helps.

No measurement of its own: auto has taken turns with the others in `shared`, `balance` and `replay`,
in the same jobs. `over_best` is its p99 over that of the best technique that has run beside it,
`over_default` over that of doing nothing; `none_helps` says whether no technique was better than
nothing by more than 5%. All p99s are of all rounds but the contestant's worst one: in a quick run a
round has some hundred records, of which one stall of the machine is more than a hundredth.

The best of several is also the luckiest of them. `over_best_rounds` has the lowest, the middle and
the highest ratio of a round: where the lowest is above what is expected, auto is worse for sure
(`surely_worse`), and where that lies between, the run does not tell.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from harness.spread import rounded

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
        ways = {"default": one["default"], "replay": one["adaptive"], "auto": one["auto"]}
        given[f"replay_{name}"] = {**ways, "chose": one["auto_chose"]}
    return given


def _dealt(one: dict[str, Any], modes: tuple[str, ...]) -> dict[str, Any]:
    singles = {mode: one[mode] for mode in modes if mode in one}
    told = {"auto": one["auto"], "chose": one["auto_chose"]}
    return {"default": one["off"], **singles, **told}


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """The section's figures, by those of the others."""
    told = {name: _compared(one) for name, one in scenarios(found).items()}
    needless = [one["over_default"] for one in told.values() if one["none_helps"]]
    return {
        "scenarios": told,
        "worst_over_best": max(one["over_best"] for one in told.values()),
        "within_expected": sum(one["over_best"] <= EXPECTED_OVER_BEST for one in told.values()),
        "surely_worse": sum(
            one["over_best_rounds"][0] > EXPECTED_OVER_BEST for one in told.values()
        ),
        "of": len(told),
        "worst_over_default_where_none_helps": max(needless, default=None),
    }


def _compared(one: dict[str, Any]) -> dict[str, Any]:
    chose, auto = one.pop("chose"), one["auto"]
    p99 = {way: measured["p99_calm"] for way, measured in one.items()}
    best = min((way for way in p99 if way != "auto"), key=p99.__getitem__)
    rounds = zip(auto["p99_rounds"], one[best]["p99_rounds"], strict=False)
    each = sorted(mine / its for mine, its in rounds)
    return {
        "p99": p99,
        "best": best,
        "over_best": rounded(p99["auto"] / p99[best]),
        "over_best_rounds": [rounded(each[0]), rounded(median(each)), rounded(each[-1])],
        "over_default": rounded(p99["auto"] / p99["default"]),
        "none_helps": p99[best] > _HELPS * p99["default"],
        "chose": chose,
    }


def table(found: dict[str, Any]) -> str:
    """As text."""
    lines = ["auto over the best technique and over nothing, p99"]
    for name, one in found["scenarios"].items():
        lines.append(
            f"  {name:32} {one['over_best']:>5} {one['over_best_rounds']} (best: {one['best']}),"
            f" {one['over_default']:>5}  {one['chose'][:150]}"
        )
    return "\n".join(lines)
