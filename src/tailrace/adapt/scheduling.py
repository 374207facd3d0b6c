"""On-line scheduling: whether a plan that should be better is worth going over to.

Measured loads and proposals of a scheduler come in, decisions go out. It does not swing: a plan
must be proposed several times in a row and be better by more than the model errs, the pause after a
change grows when it has not brought what was expected, and what has turned out worse is undone and
not tried again for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tailrace.adapt.changelog import ChangeLog
from tailrace.adapt.estimate import Effort, estimate
from tailrace.plan.plan import Plan

KIND = "plan"


class Load(NamedTuple):
    """What a job does, as measured since the last look."""

    rate: float
    """Records per second that the sources emit."""
    cores: float
    """That its workers use."""

    @property
    def core_ns(self) -> float:
        """What a record takes, all in all."""
        return self.cores * 1e9 / self.rate if self.rate else 0.0


class Proposal(Protocol):
    """A scheduler's plan beside the present one, by one profile: `planner.replanning.Replan`."""

    @property
    def plan(self) -> Plan:
        """The plan to go on with."""
        ...

    @property
    def present(self) -> Plan:
        """The plan until now."""
        ...

    @property
    def gain(self) -> float:
        """How much more can be done by the plan; 0.25: a quarter."""
        ...


@dataclass(frozen=True)
class Decision:
    """The plan to go over to, or None, and why."""

    plan: Plan | None
    reason: str
    predicted_gain: float = 0.0
    """In core-seconds, within the horizon."""
    predicted_cost: float = 0.0
    """In core-seconds."""
    undo: bool = False
    """It is the plan before, since the present one has turned out worse."""


class _Last(NamedTuple):
    """The last change, until what it brought is known."""

    number: int
    at_s: float
    plan: Plan
    before: Plan
    load: Load


class AdaptPolicy:
    """Better plans if they pay. Pure: measured loads and a clock in, decisions out.

    Ask it every `every_s`, with what a scheduler proposes: what "adapt='30 s'" means.
    """

    def __init__(
        self,
        every_s: float = 30.0,
        *,
        horizon_s: float = 600.0,
        margin: float = 1.5,
        least_gain: float = 0.1,
        in_a_row: int = 2,
        changes: ChangeLog | None = None,
    ) -> None:
        """`least_gain`: the model errs by about as much."""
        if every_s <= 0 or horizon_s <= every_s:
            raise ValueError(
                f"horizon_s is {horizon_s} and every_s {every_s}; gains must have time to come in"
            )
        self.every_s = every_s
        self.horizon_s = horizon_s
        self.margin = margin
        self.least_gain = least_gain
        self.in_a_row = in_a_row
        self.changes = ChangeLog() if changes is None else changes
        self._pause_s = every_s
        self._changed_s: float | None = None
        self._wanted = 0
        self._last: _Last | None = None
        self._begun: _Last | None = None
        self._bad: dict[tuple[int, ...], tuple[float, int]] = {}
        """Where instances were in plans that turned out worse: until when they are left alone, and
        how often that was."""

    def decide(self, now_s: float, proposal: Proposal, effort: Effort, load: Load) -> Decision:
        """Whether to go over to the proposal's plan, or back to the one before."""
        if self._changed_s is not None and now_s - self._changed_s < self._pause_s:
            ago_s = now_s - self._changed_s
            return Decision(None, f"the last change was {ago_s:.0f} s ago, of {self._pause_s:g}")
        undo = self._check(now_s, load)
        if undo is not None:
            return undo
        gain = proposal.gain
        plan = proposal.plan
        if plan.place_of == proposal.present.place_of and plan.chains == proposal.present.chains:
            self._wanted = 0
            return Decision(None, "the plan is the present one")
        if self._bad.get(plan.place_of, (now_s, 0))[0] > now_s:
            return Decision(None, "that plan has turned out worse not long ago")
        # What the load needs less: the same work by a plan that can do 1 + gain times as much.
        freed = load.cores * gain / (1 + gain) if gain > -1 else -load.cores
        expected = estimate(self.changes, KIND, now_s, freed, effort)
        told = expected.gain * self.horizon_s, expected.cost
        if expected.gain < self.least_gain * load.cores / (1 + self.least_gain):
            self._wanted = 0
            return Decision(None, f"{gain:+.0%} by the model is too little", *told)
        if not expected.pays(self.horizon_s, self.margin):
            self._wanted = 0
            return Decision(
                None,
                f"moving {effort.keys:,} keys costs {expected.cost:.2f} core-seconds and saves"
                f" {told[0]:.2f} in {self.horizon_s:g} s",
                *told,
            )
        self._wanted += 1
        if self._wanted < self.in_a_row:
            often = f"{self._wanted} of {self.in_a_row} times in a row"
            return Decision(None, f"{gain:+.0%} by the model, proposed {often}", *told)
        return Decision(plan, f"{gain:+.0%} by the model", *told)

    def begin(
        self, now_s: float, decision: Decision, present: Plan, effort: Effort, load: Load
    ) -> None:
        """The plan of a decision is being applied."""
        assert decision.plan is not None
        trust = self.changes.trust(KIND, now_s)
        gain = 0.0 if decision.undo else decision.predicted_gain / self.horizon_s / trust
        number = self.changes.begin(now_s, KIND, effort.keys, effort.size_bytes, gain)
        self._begun = _Last(number, now_s, decision.plan, present, load)
        self._wanted = 0

    def done(self, now_s: float, took_s: float, moved_keys: int | None = None) -> None:
        """It is."""
        self._changed_s = now_s
        if self._begun is not None:
            self.changes.finished(self._begun.number, took_s, moved_keys)
            if self.changes[self._begun.number].predicted_gain > 0:
                self._last = self._begun._replace(at_s=now_s)
        self._begun = None

    def failed(self, now_s: float) -> None:
        """It was not, and all is as it was."""
        self._changed_s = now_s
        self._pause_s = min(2 * self._pause_s, self.horizon_s)
        if self._begun is not None:
            self.changes.failed(self._begun.number)
        self._begun = None

    def _check(self, now_s: float, load: Load) -> Decision | None:
        """What the last change has brought; if it has made things worse, the way back."""
        last, self._last = self._last, None
        if last is None or not load.rate or not last.load.rate:
            return None
        was_ns, is_ns = last.load.core_ns, load.core_ns
        gain = load.rate * (was_ns - is_ns) / 1e9
        expected = self.changes[last.number].predicted_gain
        self.changes.observed(last.number, gain)
        if gain >= expected / 2:
            self._pause_s = self.every_s
            return None
        self._pause_s = min(2 * self._pause_s, self.horizon_s)
        # More work was done, too, if the plan before could not: that is what it was for.
        if is_ns <= was_ns * (1 + self.least_gain) or load.rate > last.load.rate:
            return None
        often = self._bad.get(last.plan.place_of, (0.0, 0))[1]
        self._bad[last.plan.place_of] = now_s + self.horizon_s * 4.0 ** min(often, 20), often + 1
        return Decision(
            last.before,
            f"a record takes {is_ns / 1e3:.1f} us since the last change, {was_ns / 1e3:.1f} before",
            undo=True,
        )
