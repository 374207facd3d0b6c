"""Whether tables of keys pay: what counted pairs say they bring, against what moving keys costs.

The policy is asked now and then, while pairs are counted. Between two changes it compares what its
last tables were expected to bring with what came of them: tables fit the records that they were
made of, and what comes next is never quite like these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.adapt.changelog import ChangeLog
from tailrace.adapt.estimate import KEY_BYTES, MOVING_CORES, Effort, Estimate, estimate
from tailrace.adapt.halves import halves
from tailrace.routing.deciding import tables_for
from tailrace.routing.forecast import Forecast, forecast, moved
from tailrace.routing.homes import Homes
from tailrace.routing.keygraph import ALPHA, Costs, KeyGraph
from tailrace.routing.pairs import PairCounts
from tailrace.routing.partition import Partition, partition
from tailrace.routing.slots import SLOTS, Routes
from tailrace.routing.tables import Tables

KIND = "tables"


class Ways(NamedTuple):
    """The CPU time of a record by its way, both ends together; inside a worker, nothing.

    `tcp_ns` also stands for the network's share: where links are what is scarce, make it more.
    """

    ring_ns: float = 1_000.0
    tcp_ns: float = 5_000.0
    work_ns: float = 2_000.0
    """What an operator does with a record: what an uneven load wastes of others' time."""

    def ns(self, told: Forecast) -> float:
        """Of a record on average."""
        return told.near * self.ring_ns + (1 - told.inside) * self.tcp_ns

    def cores(self, rate: float, told: Forecast) -> float:
        """What ways and uneven loads take at a rate."""
        waste_ns = self.work_ns * max(told.worst_imbalance - 1.0, 0.0)
        return rate * (self.ns(told) + waste_ns) / 1e9


STANDARD_WAYS = Ways()


@dataclass(frozen=True)
class Decision:
    """Which tables to go on with, or None, and why."""

    tables: Tables | None
    reason: str
    predicted_gain: float = 0.0
    """In core-seconds, within the horizon."""
    predicted_cost: float = 0.0
    """In core-seconds."""
    keys: int = 0
    """That would move."""


@dataclass(frozen=True)
class _Last:
    """The last change, until what it brought is known."""

    number: int
    at_s: float
    before: Forecast


class LocalityPolicy:
    """Tables if they pay, and only then. Pure: observations and a clock in, decisions out.

    They pay if, as far as such changes are to be trusted, they free more within `horizon_s` than
    `margin` times what moving takes. Not before `least_records` were counted, nor `pause_s` after
    a change; statistics begin anew with each change, which is the caller's to do.
    """

    def __init__(
        self,
        *,
        ways: Ways = STANDARD_WAYS,
        horizon_s: float = 300.0,
        pause_s: float = 10.0,
        margin: float = 1.5,
        least_gain: float = 0.05,
        least_records: float = 10_000,
        alpha: float = ALPHA,
        changes: ChangeLog | None = None,
        solve: Callable[[KeyGraph], Partition] = partition,
    ) -> None:
        """`least_gain`: of what ways take now; less than that is not worth a thought."""
        self.ways = ways
        self.horizon_s = horizon_s
        self.pause_s = pause_s
        self.margin = margin
        self.least_gain = least_gain
        self.least_records = least_records
        self.alpha = alpha
        self.changes = ChangeLog() if changes is None else changes
        self._solve = solve
        self._last: _Last | None = None
        self._changed_s: float | None = None
        self._begun: int | None = None
        self._before: Forecast | None = None

    def decide(
        self,
        now_s: float,
        pairs: Sequence[PairCounts],
        homes: Homes,
        routes: Mapping[str, Routes],
        rate: float,
        held: Mapping[str, int] | None = None,
    ) -> Decision:
        """Tables to go on with, or why there are none.

        `pairs` were counted since the last change, `rate` is how many records per second they
        stand for, `routes` say who owns keys now, `held` how many keys an operator has.
        """
        if self._changed_s is not None and now_s - self._changed_s < self.pause_s:
            ago_s = now_s - self._changed_s
            return Decision(None, f"the last change was {ago_s:.0f} s ago, of {self.pause_s:g}")
        total = sum(one.total for one in pairs)
        if total < self.least_records or rate <= 0:
            return Decision(None, f"{total:,.0f} records were counted, of {self.least_records:,}")
        present = forecast(pairs, routes, homes)
        self._check(now_s, present, rate)
        now_cores = self.ways.cores(rate, present)
        # All that can be gained would have to pay for the least change, before much is computed.
        least = estimate(self.changes, KIND, now_s, now_cores, Effort())
        if not least.pays(self.horizon_s, self.margin):
            return Decision(
                None,
                f"{present.local:.0%} stay in their workers; the rest takes {now_cores:.4f} cores,"
                " too little for any change",
                least.gain * self.horizon_s,
                least.cost,
            )
        counted_s = total / rate
        # By one half of the records, for the other: what tables bring to records that come later.
        made_of, judged_by = halves(pairs)
        half = _under(self._tables(made_of, homes, routes, counted_s / 2), routes)
        after = forecast(judged_by, half, homes)
        present = forecast(judged_by, routes, homes)
        now_cores = self.ways.cores(rate, present)
        gain = now_cores - self.ways.cores(rate, after)
        tables = self._tables(pairs, homes, routes, counted_s)
        effort = _effort(pairs, routes, _under(tables, routes), homes, held or {})
        expected = estimate(self.changes, KIND, now_s, gain, effort)
        return self._judged(present, after, now_cores, expected, effort, tables)

    def _judged(
        self,
        present: Forecast,
        after: Forecast,
        now_cores: float,
        expected: Estimate,
        effort: Effort,
        tables: Tables,
    ) -> Decision:
        story = (
            f"{present.local:.0%} stay in their workers and {present.near:.0%} in their nodes,"
            f" {after.local:.0%} and {after.near:.0%} would; imbalance"
            f" {present.worst_imbalance:.2f}, then {after.worst_imbalance:.2f};"
            f" {effort.keys:,} keys to move"
        )
        told = expected.gain * self.horizon_s, expected.cost, effort.keys
        if not effort.keys:
            return Decision(None, f"all is where it should be: {story}", *told)
        if expected.gain < self.least_gain * now_cores:
            return Decision(None, f"too little to gain: {story}", *told)
        if not expected.pays(self.horizon_s, self.margin):
            return Decision(
                None,
                f"moving costs {expected.cost:.2f} core-seconds and saves {told[0]:.2f} in"
                f" {self.horizon_s:g} s: {story}",
                *told,
            )
        self._before = present
        return Decision(tables, story, *told)

    def begin(self, now_s: float, decision: Decision) -> None:
        """The tables of a decision are being applied."""
        assert decision.tables is not None
        gain = decision.predicted_gain / self.horizon_s / self.changes.trust(KIND, now_s)
        self._begun = self.changes.begin(
            now_s, KIND, decision.keys, decision.keys * KEY_BYTES, gain
        )

    def done(self, now_s: float, took_s: float, moved_keys: int | None = None) -> None:
        """They are; pairs are counted anew from now on."""
        self._changed_s = now_s
        if self._begun is not None and self._before is not None:
            self.changes.finished(self._begun, took_s, moved_keys)
            self._last = _Last(self._begun, now_s, self._before)
        self._begun = None

    def failed(self, now_s: float) -> None:
        """They were not, and all is as it was."""
        self._changed_s = now_s
        if self._begun is not None:
            self.changes.failed(self._begun)
        self._begun = None

    def _check(self, now_s: float, present: Forecast, rate: float) -> None:
        """What the last change has brought, by what was counted since."""
        if self._last is not None and now_s - self._last.at_s <= self.horizon_s:
            gain = self.ways.cores(rate, self._last.before) - self.ways.cores(rate, present)
            self.changes.observed(self._last.number, gain)
        self._last = None

    def _tables(
        self,
        pairs: Sequence[PairCounts],
        homes: Homes,
        routes: Mapping[str, Routes],
        counted_s: float,
    ) -> Tables:
        """Keys move if they save, among what was counted, enough to pay within the horizon."""
        move_ns = self.margin * MOVING_CORES * 1e9 / self.changes.keys_per_s
        costs = Costs(self.ways.ring_ns, self.ways.tcp_ns, move_ns * counted_s / self.horizon_s)
        return tables_for(pairs, homes, routes, alpha=self.alpha, costs=costs, solve=self._solve)


def _under(tables: Tables, routes: Mapping[str, Routes]) -> dict[str, Routes]:
    """The routes that there are with tables."""
    return {**routes, **{name: tables[name].routes(routes.get(name)) for name in tables}}


def _effort(
    pairs: Sequence[PairCounts],
    routes: Mapping[str, Routes],
    becomes: Mapping[str, Routes],
    homes: Homes,
    held: Mapping[str, int],
) -> Effort:
    known = moved(pairs, routes, becomes, homes)
    keys = known.keys + round(known.slots / SLOTS * max(held.values(), default=0))
    return Effort(keys, keys * KEY_BYTES)
