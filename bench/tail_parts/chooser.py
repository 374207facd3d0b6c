"""How good auto is beside the best single technique, and beside nothing where nothing helps.

No measurement of its own: auto has taken turns with the others in `shared`, `balance` and `replay`,
on the same jobs. `over_best` is its p99 over that of the best technique that has run beside it,
`over_default` over that of doing nothing; `none_helps` says whether no technique was better than
nothing by more than 5%.
"""

from __future__ import annotations

from typing import Any

from harness.spread import rounded

EXPECTED_OVER_BEST, EXPECTED_OVER_DEFAULT = 1.1, 1.05
_HELPS = 0.95
_SINGLES = {"shared": ("shared", "balance"), "balance": ("balance", "shared", "du", "storm")}


def scenarios(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By scenario: the p99 of nothing, of each technique and of auto, and what that chose."""
    given: dict[str, dict[str, Any]] = {}
    for one in (found["shared"], *found["shared"].get("figure_5_6", [])):
        name = f"shared_{round(100 * one['utilisation'])}_percent"
        given.setdefault(name, _dealt(one, _SINGLES["shared"]))
    for name in "abc":
        given[f"balance_{name}"] = _dealt(found["balance"][name], _SINGLES["balance"])
    for name in ("quiet", "stopped_beside_sources"):
        one = found["replay"][name]
        given[f"replay_{name}"] = {
            "default": one["default"]["p99_ms"],
            "replay": one["adaptive"]["p99_ms"],
            "auto": one["auto"]["p99_ms"],
            "chose": one["auto_chose"],
        }
    return given


def _dealt(one: dict[str, Any], modes: tuple[str, ...]) -> dict[str, Any]:
    singles = {mode: one[mode]["p99"] for mode in modes if mode in one}
    told = {"auto": one["auto"]["p99"], "chose": one["auto_chose"]}
    return {"default": one["off"]["p99"], **singles, **told}


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """The section's figures, by those of the others."""
    told: dict[str, Any] = {}
    for name, one in scenarios(found).items():
        p99s = {way: p99 for way, p99 in one.items() if way not in ("auto", "chose")}
        best = min(p99s, key=lambda way: p99s[way])
        told[name] = {
            "p99": {**p99s, "auto": one["auto"]},
            "best": best,
            "over_best": rounded(one["auto"] / p99s[best]),
            "over_default": rounded(one["auto"] / p99s["default"]),
            "none_helps": p99s[best] > _HELPS * p99s["default"],
            "chose": one["chose"],
        }
    needless = [one["over_default"] for one in told.values() if one["none_helps"]]
    return {
        "scenarios": told,
        "worst_over_best": max(one["over_best"] for one in told.values()),
        "within_expected": sum(one["over_best"] <= EXPECTED_OVER_BEST for one in told.values()),
        "of": len(told),
        "worst_over_default_where_none_helps": max(needless, default=None),
    }


def table(found: dict[str, Any]) -> str:
    """As text."""
    lines = ["auto over the best technique and over nothing, p99"]
    for name, one in found["scenarios"].items():
        lines.append(
            f"  {name:32} {one['over_best']:>5} (best: {one['best']}), {one['over_default']:>5}"
            f"  {one['chose'][:150]}"
        )
    return "\n".join(lines)
