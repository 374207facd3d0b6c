"""Which technique is on for which stream, and why: by conditions that are measured, and by trial.

Du's table 5.4 says when each technique is worth it, and leaves it to people to look (future work):

| condition of a stream, measured per period | tried first |
|---|---|
| some receivers are much slower than others of the operator, or all have some queues | balance |
| its receivers are busy, all of its inputs shuffled, all on one node | shared (else balance) |
| queues and workers are not busy, but some records take far longer than most | replay |

A condition is where to look, and not a proof. What it suggests is turned on for a period, on trial,
and stays only if the p99 from source to sink was better than before by more than chance; else it is
undone, and not tried again for a time that doubles. One look is not much: the p99 of a few hundred
records is off by a fifth, and other programs may have had the machine for a while. So the condition
counts as a first look, and while it is open there are more, `_MOST_LOOKS` at most; behind each that
was worse comes a period as it was before, which tells anew what that is like. What is on is left
again when it is found to be no better than without: its condition is gone, or the p99 above what it
was without it. So a trial makes things worse for a period at most, and what does not help is tried
ever more rarely; that holds for going back to nothing, too, unless the p99 doubles. How much is
chance, how long a period is and how fast old periods are forgotten follows from how much p99s of
like periods differ.

Pure: figures and a clock in, decisions out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp, log, sqrt
from statistics import fmean, median_low

from tailrace.tail.conditions import OFF_SETTING, Period, Setting, Thresholds, suggestions, wanted

_SIGMAS = 1.5
"""By how many usual differences of like periods a trial must be better."""
_HOPE = log(0.75)
"""What a condition counts for: a look in which it was so much better."""
_MOST_LOOKS = 4
_TWICE = log(2)
_BELIEVED = 3.0
"""No single period counts for more than so many usual differences: it may be an accident."""
_LEAST_MARGIN, _MOST_MARGIN = log(1.05), log(1.5)
_FIRST_NOISE, _LEAST_NOISE = log(1.08), log(1.01)
_ERROR = 3.5
"""Over the root of how many latencies there are: by so much a p99 of them is off, usually. Of an
exponential tail it would be 2.2, but who waits behind others waits as long as they do."""
_NEWS, _BREAKING_NEWS = 0.25, 0.6
"""How much a period counts beside many before; if two in turn are off to the same side, more."""
_LIKE = 4
"""So many periods make an average."""
_STEADY, _RESTLESS = log(1.05), log(1.25)
"""Where like periods differ by more they should be longer, by less shorter."""
_LEAVES = 1.5
"""After so many p99s what was emitted before is gone."""
_PERIODS_BEFORE, _MOST_PERIODS_BEFORE = 2, 6
"""Something is tried when the last period was like those before it, or after the latter number."""
_PERIODS_WITHOUT_NEED = 3
REPLAY_LEARNS_S = 1.5
"""Until sources know when something is late (`timeout.py`)."""


@dataclass(frozen=True)
class Decision:
    """What to go over to, or None, and why."""

    setting: Setting | None
    reason: str


@dataclass
class _Trial:
    setting: Setting
    why: str
    period: Period
    """The one that has suggested it."""
    hoped: bool = False
    """Whether a condition speaks for it, and it has not failed yet."""
    fewer: bool = False
    """Whether it is less than what is kept: then it need not be better."""
    before: float | None = None
    """The logarithm of the p99 that it has to beat, if that is not what is kept has on average."""
    seen: list[float] = field(default_factory=list)
    """Logarithms of p99s with it."""
    looks: list[float] = field(default_factory=list)
    """How far they were above what they have to beat."""

    @property
    def p99(self) -> float:
        """The logarithm of what it is with it, accidents aside."""
        return median_low(self.seen)


@dataclass
class _Failure:
    """When something may be tried again, how long that took, and what the p99 was then."""

    until_s: float
    wait_s: float
    p99: float


class Chooser:
    """See above. `decide` is asked once per period, when `due` says that it is over.

    Parameters
    ----------
    least_s, most_s : how long a period is; it adapts in between
    records : so many latencies a period has, unless it would be longer than `most_s`
    again_s, most_again_s : for how long something that did not help is not tried again, at first
        and at last
    """

    def __init__(
        self,
        *,
        least_s: float = 2.0,
        most_s: float = 30.0,
        records: int = 2000,
        again_s: float = 60.0,
        most_again_s: float = 3600.0,
    ) -> None:
        if not 0 < least_s <= most_s:
            raise ValueError(
                f"least_s is {least_s} and most_s {most_s}; a period is longer than 0, and the"
                " longest not below the shortest"
            )
        if not 0 < again_s <= most_again_s:
            raise ValueError(
                f"again_s is {again_s} and most_again_s {most_again_s}; the time until something"
                " is tried again grows from the first to the second"
            )
        if records < 100:
            raise ValueError(f"records is {records}; a p99 needs at least 100")
        self.least_s = least_s
        self.most_s = most_s
        self.records = records
        self.again_s = again_s
        self.most_again_s = most_again_s
        self.period_s = least_s
        """How long a period is now."""
        self.present = OFF_SETTING
        """What is on, a trial included."""
        self.settled = False
        """Whether, by the last period, there is nothing to try now."""
        self.thresholds = Thresholds()
        self._kept = OFF_SETTING
        self._trial: _Trial | None = None
        self._why = ""
        self._p99: float | None = None  # aged, of what is kept
        self._without: float | None = None  # the same, when nothing was on
        self._p99_s = 0.0  # of the last period
        self._last: float | None = None
        self._side = 0
        self._noise = _FIRST_NOISE
        self._error = 0.0
        self._periods = self._needless = self._averaged = 0
        self._failures: dict[str, _Failure] = {}  # by what was on, whichever streams had it

    @property
    def margin(self) -> float:
        """By which share a p99 must be better, not to be chance."""
        return 1 - exp(-self._margin)

    @property
    def trying(self) -> bool:
        """Whether something is on trial."""
        return self._trial is not None

    @property
    def settle_s(self) -> float:
        """For how long after a change nothing counts: until what was under way before has left."""
        settle_s = max(self.period_s / 4, min(_LEAVES * self._p99_s, self.most_s))
        return max(settle_s, REPLAY_LEARNS_S) if self.present.replay else settle_s

    @property
    def _usual(self) -> float:
        return max(self._noise, self._error)

    @property
    def _margin(self) -> float:
        return min(max(_SIGMAS * self._usual, _LEAST_MARGIN), _MOST_MARGIN)

    def _believed(self, apart: float) -> float:
        most = min(_BELIEVED * self._usual, _TWICE)
        return min(max(apart, -most), most)

    def due(self, seconds: float, records: int) -> bool:
        """Whether a period that has lasted for so long, with so many latencies, is over."""
        if seconds < self.period_s:
            return False
        return records >= self.records or seconds >= self.most_s

    def manage(self, streams: frozenset[str], *, replay: bool) -> None:
        """Others than these are none of its business any more; `replay` says the same of that."""
        kept = self._kept.only(streams, replay=replay)
        if kept != self._kept or self.present != self.present.only(streams, replay=replay):
            self._kept = self.present = kept
            self._trial = None
            self._forget()

    def interrupted(self) -> None:
        """Something else was changed: what was measured before says little about what comes."""
        if self._trial is not None:
            self._trial.seen.clear()
            self._trial.looks.clear()
        self._periods, self._last, self._side = 0, None, 0

    def decide(self, now_s: float, period: Period) -> Decision:
        """What is on in the next period, by the one that is over."""
        if period.p99_ms <= 0:
            return Decision(None, "nothing came out")
        p99, self._p99_s = log(period.p99_ms), period.p99_ms / 1e3
        self._error = _ERROR / sqrt(max(period.records, 1))
        trial = self._trial
        if trial is not None and self.present == trial.setting:
            return self._judge(now_s, trial, p99)
        apart = None if self._p99 is None else p99 - self._p99
        self._learn(p99)
        if trial is not None:
            return self._resume(now_s, trial, p99)
        worse = self._is_worse(p99)
        if worse and self._may(OFF_SETTING, now_s):
            assert self._without is not None
            why = f"the p99 is above the {_ms(self._without)} without"
            return self._begin(_Trial(OFF_SETTING, why, period, before=p99))
        steady = apart is not None and abs(apart) <= self._margin
        rises = apart is not None and apart > 0
        enough = _PERIODS_BEFORE if steady or rises else _MOST_PERIODS_BEFORE
        if self._periods < enough and not worse:
            return Decision(None, f"{self._told()}; looked at for {self._periods} periods")
        for setting, why, speaks in self._ideas(period):
            if not speaks and not steady and self._periods < _MOST_PERIODS_BEFORE:
                break
            if setting != self._kept and self._may(setting, now_s):
                hoped = speaks and self._kind(setting) not in self._failures
                fewer = setting.is_part_of(self._kept)
                return self._begin(_Trial(setting, why, period, hoped, fewer))
        else:
            self.settled = True
        return Decision(None, self._told())

    # ---- what is known ----

    def _learn(self, p99: float) -> None:
        """Another period of what is kept."""
        self._periods += 1
        self._averaged = min(self._averaged + 1, _LIKE)
        if self._p99 is None:
            self._p99 = p99
        elif self._last is None:
            self._p99 += self._believed(p99 - self._p99) / self._averaged
        else:
            # A load that jumps is no noise.
            step = min(abs(p99 - self._last), _BELIEVED * self._noise)
            self._noise = max(self._noise + _NEWS * (step - self._noise), _LEAST_NOISE)
            apart = p99 - self._p99
            side = (apart > self._margin) - (apart < -self._margin)
            shifts = side != 0 and side == self._side
            self._side = side
            if shifts:
                self._p99 += _BREAKING_NEWS * apart
            else:
                self._p99 += self._believed(apart) / self._averaged
        self._last = p99
        if self._kept == OFF_SETTING:
            self._without = self._p99
        if self._noise > _RESTLESS:
            self.period_s = min(1.5 * self.period_s, self.most_s)
        elif self._noise < _STEADY:
            self.period_s = max(self.period_s / 1.5, self.least_s)

    def _forget(self) -> None:
        self._p99 = self._last = None
        self._periods = self._needless = self._side = self._averaged = 0

    # ---- what to try ----

    def _is_worse(self, p99: float) -> bool:
        """Whether the last period of what is on was worse than those without it."""
        if self._kept == OFF_SETTING or self._without is None:
            return False
        assert self._p99 is not None
        if self._averaged == _LIKE and self._p99 > self._without + self._margin / 2:
            return True
        return p99 > self._without + self._margin

    def _ideas(self, period: Period) -> Iterator[tuple[Setting, str, bool]]:
        kept = self._kept
        if kept != OFF_SETTING:
            needed, gone = wanted(kept, period)
            self._needless = self._needless + 1 if needed != kept else 0
            if self._needless >= _PERIODS_WITHOUT_NEED:
                yield needed, gone, False
        yield from suggestions(kept, period, self.thresholds)

    def _may(self, setting: Setting, now_s: float) -> bool:
        """Not what has failed lately, unless all has become twice as slow since."""
        failure = self._failures.get(self._kind(setting))
        assert self._p99 is not None
        return failure is None or now_s >= failure.until_s or self._p99 > failure.p99 + _TWICE

    def _begin(self, trial: _Trial) -> Decision:
        self._trial, self.present = trial, trial.setting
        self._needless, self.settled = 0, False
        return Decision(trial.setting, f"tries {trial.setting}: {trial.why}")

    # ---- what came of it ----

    def _judge(self, now_s: float, trial: _Trial, p99: float) -> Decision:
        before = self._p99 if trial.before is None else trial.before
        assert before is not None
        look = self._believed(p99 - before)
        trial.seen.append(p99)
        trial.looks.append(look)
        looks = [*trial.looks, *([_HOPE] if trial.hoped else [])]
        found = fmean(looks)
        # What it is compared with is an average, and off by something, too.
        usual = self._usual * sqrt((1 + 1 / max(self._averaged, 1)) / len(looks))
        margin = min(max(_SIGMAS * usual, _LEAST_MARGIN), _MOST_MARGIN)
        change = f"p99 {_ms(before)} before, {_ms(trial.p99)} with it"
        if found < (margin if trial.fewer else -margin):
            if trial.setting != OFF_SETTING or trial.fewer:
                return self._keep(now_s, trial, f"{trial.setting}: {trial.why}; {change}")
            return self._pause(trial, change)  # was it an accident that what is on was worse?
        again = self._kind(trial.setting) in self._failures
        open_yet = found <= (margin if trial.hoped else 0) and not (again and look > 0)
        if open_yet and len(trial.looks) < _MOST_LOOKS:
            if look <= 0:
                return Decision(None, f"tries {trial.setting} for another period: {change}")
            return self._pause(trial, change)
        return self._drop(now_s, trial, before, change)

    def _pause(self, trial: _Trial, change: str) -> Decision:
        """Have a period as it was before."""
        self.present = self._kept
        return Decision(self._kept, f"{self._kept} for a period, to compare: {change}")

    def _resume(self, now_s: float, trial: _Trial, p99: float) -> Decision:
        """What is kept has had another period."""
        if trial.before is None or not trial.seen:
            self.present = trial.setting
            return Decision(trial.setting, f"tries {trial.setting} again: {_ms(p99)} without it")
        found = trial.p99
        change = f"p99 {_ms(p99)} with {self._kept}, {_ms(found)} with {trial.setting}"
        assert self._p99 is not None
        if (self._p99 + p99) / 2 > found + self._margin / 2:
            self.present, self._p99 = trial.setting, p99
            self._keep(now_s, trial, f"{trial.setting}: {trial.why}; {change}")
            return Decision(trial.setting, self._why)
        return self._drop(now_s, trial, p99, change)

    def _drop(self, now_s: float, trial: _Trial, before: float, change: str) -> Decision:
        wait_s = self._failed(trial.setting, now_s, before)
        if trial.setting == OFF_SETTING:
            self._without = trial.p99
        self.thresholds.wrong(trial.setting, trial.period)
        self._trial, self.present = None, self._kept
        self._last, self._periods = None, _PERIODS_BEFORE - 1
        self._why = (
            f"{self._kept}: {trial.setting} was tried and did not help, {change};"
            f" not again for {wait_s:,.0f} s"
        )
        return Decision(self._kept, self._why)

    def _keep(self, now_s: float, trial: _Trial, why: str) -> Decision:
        if self._kept != OFF_SETTING:  # it was there, and is not as good: no way back for a while
            assert self._p99 is not None
            self._failed(self._kept, now_s, self._p99)
        self.thresholds.right(trial.setting)
        self._kept, self._trial, self._why = trial.setting, None, why
        self._forget()
        self._p99, self._averaged = trial.p99, len(trial.seen)
        self._periods = _PERIODS_BEFORE - 1
        if self._kept == OFF_SETTING:
            self._without = self._p99
        return Decision(None, why)

    def _failed(self, setting: Setting, now_s: float, p99: float) -> float:
        """It is not tried again for a while; for how long."""
        before = self._failures.get(kind := self._kind(setting))
        wait_s = self.again_s if before is None else min(2 * before.wait_s, self.most_again_s)
        self._failures[kind] = _Failure(now_s + wait_s, wait_s, p99)
        return wait_s

    def _kind(self, setting: Setting) -> str:
        """What it is remembered by: streams come and go around a limit, and would be news."""
        if setting == OFF_SETTING:
            return "off"
        if setting != self._kept and setting.is_part_of(self._kept):
            return "fewer"
        return " ".join(sorted({mode for _, mode in setting.modes})) + " replay" * setting.replay

    def _told(self) -> str:
        return self._why or f"{self._kept}: nothing is known to help"


def _ms(p99: float) -> str:
    return f"{exp(p99):.3g} ms"
