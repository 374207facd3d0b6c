"""Which technique is on for which stream, and why: by conditions that are measured, and by trial.

Du's table 5.4 says when each technique is worth it, and leaves it to people to look (future work):

| condition of a stream, measured per period | tried first |
|---|---|
| some receivers are much slower than others of the same operator | balance |
| its receivers are busy, all of its inputs shuffled, all on one node | shared (else balance) |
| queues and workers are not busy, but some records take far longer than most | replay |

A condition is where to look, and not a proof. What it suggests is turned on for a period, on trial,
and stays only if the p99 from source to sink was better than before by more than chance; else it is
undone, and not tried again for a time that doubles. What is on is left again when it is found to be
no better than without: its condition is gone, or the p99 above what it was without it. So a trial
makes things worse for a period at most, and what does not help is tried ever more rarely; that
holds for going back to nothing, too, unless the p99 doubles. How much is chance, how long a period
is and how fast old periods are forgotten follows from how much p99s of like periods differ.

Pure: figures and a clock in, decisions out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp, log, sqrt

from tailrace.tail.conditions import OFF_SETTING, Period, Setting, Thresholds, suggestions, wanted

_SIGMAS = 1.5
"""By how many usual differences of like periods a trial must be better."""
_LEAST_MARGIN, _MOST_MARGIN = log(1.05), log(1.5)
_FIRST_NOISE, _LEAST_NOISE = log(1.08), log(1.01)
_ERROR = 3.5
"""Over the root of how many latencies there are: by so much a p99 of them is off, usually. Of an
exponential tail it would be 2.2, but who waits behind others waits as long as they do."""
_WILD = 3.0
_NEWS, _BREAKING_NEWS = 0.25, 0.6
"""How much a period counts beside those before; if two in turn are off to the same side, more."""
_STEADY, _RESTLESS = log(1.05), log(1.25)
"""Where like periods differ by more they should be longer, by less shorter."""
_TWICE = log(2)
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
    before: float
    """The logarithm of the p99 that it has to beat."""
    period: Period
    """The one that has suggested it."""
    fewer: bool
    """Whether it is less than what is kept: then it need not be better."""
    seen: list[float] = field(default_factory=list)


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
        self._periods = self._needless = 0
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
    def _margin(self) -> float:
        noise = max(self._noise, self._error)
        return min(max(_SIGMAS * noise, _LEAST_MARGIN), _MOST_MARGIN)

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
        self._periods, self._last, self._side = 0, None, 0

    def decide(self, now_s: float, period: Period) -> Decision:
        """What is on in the next period, by the one that is over."""
        if period.p99_ms <= 0:
            return Decision(None, "nothing came out")
        p99, self._p99_s = log(period.p99_ms), period.p99_ms / 1e3
        self._error = _ERROR / sqrt(max(period.records, 1))
        if self._trial is not None:
            return self._judge(now_s, self._trial, p99)
        steady = self._p99 is not None and abs(p99 - self._p99) <= self._margin
        self._learn(p99)
        enough = _PERIODS_BEFORE if steady else _MOST_PERIODS_BEFORE
        if self._periods < enough and not self._is_worse(p99):
            return Decision(None, f"{self._told()}; looked at for {self._periods} periods")
        if self._is_worse(p99) and self._may(OFF_SETTING, now_s):
            assert self._without is not None
            why = f"the p99 is above the {_ms(self._without)} without"
            # What is average no longer counts, but only if it is worse is it left.
            return self._begin(_Trial(OFF_SETTING, why, p99, period, fewer=False))
        for setting, why in self._ideas(period):
            if setting != self._kept and self._may(setting, now_s):
                assert self._p99 is not None
                fewer = setting.is_part_of(self._kept)
                return self._begin(_Trial(setting, why, self._p99, period, fewer))
        self.settled = True
        return Decision(None, self._told())

    # ---- what is known ----

    def _learn(self, p99: float) -> None:
        """Another period of what is kept."""
        self._periods += 1
        if self._p99 is None or self._last is None:
            self._p99 = p99 if self._p99 is None else self._p99 + _NEWS * (p99 - self._p99)
        else:
            step = min(abs(p99 - self._last), _WILD * self._noise)  # a load that jumps is no noise
            self._noise = max(self._noise + _NEWS * (step - self._noise), _LEAST_NOISE)
            apart = p99 - self._p99
            side = (apart > self._margin) - (apart < -self._margin)
            shifts = side != 0 and side == self._side
            self._side = side
            self._p99 += (_BREAKING_NEWS if shifts else _NEWS) * apart
        self._last = p99
        if self._kept == OFF_SETTING:
            self._without = self._p99
        if self._noise > _RESTLESS:
            self.period_s = min(1.5 * self.period_s, self.most_s)
        elif self._noise < _STEADY:
            self.period_s = max(self.period_s / 1.5, self.least_s)

    def _forget(self) -> None:
        self._p99 = self._last = None
        self._periods = self._needless = self._side = 0

    # ---- what to try ----

    def _is_worse(self, p99: float) -> bool:
        """Whether the last period of what is on was worse than those without it."""
        if self._kept == OFF_SETTING or self._without is None:
            return False
        return p99 > self._without + self._margin

    def _ideas(self, period: Period) -> Iterator[tuple[Setting, str]]:
        kept = self._kept
        if kept != OFF_SETTING:
            needed, gone = wanted(kept, period)
            self._needless = self._needless + 1 if needed != kept else 0
            if self._needless >= _PERIODS_WITHOUT_NEED:
                yield needed, gone
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
        trial.seen.append(p99)
        found = sum(trial.seen) / len(trial.seen)
        change = f"p99 {_ms(trial.before)} before, {_ms(found)} with it"
        most = trial.before + (self._margin if trial.fewer else -self._margin)
        if found < most:
            return self._keep(now_s, trial, found, f"{trial.setting}: {trial.why}; {change}")
        if found <= trial.before and len(trial.seen) < 2:
            return Decision(None, f"tries {trial.setting} for another period: {change}")
        wait_s = self._failed(trial.setting, now_s, trial.before)
        if trial.setting == OFF_SETTING:
            self._without = found
        self.thresholds.wrong(trial.setting, trial.period)
        self._trial, self.present = None, self._kept
        self._last, self._periods = None, _PERIODS_BEFORE - 1
        self._why = (
            f"{self._kept}: {trial.setting} was tried and did not help, {change};"
            f" not again for {wait_s:,.0f} s"
        )
        return Decision(self._kept, self._why)

    def _keep(self, now_s: float, trial: _Trial, p99: float, why: str) -> Decision:
        if self._kept != OFF_SETTING:  # it was there, and is not as good: no way back for a while
            self._failed(self._kept, now_s, trial.before)
        self.thresholds.right(trial.setting)
        self._kept, self._trial, self._why = trial.setting, None, why
        self._forget()
        self._p99, self._periods = p99, _PERIODS_BEFORE - 1
        if self._kept == OFF_SETTING:
            self._without = p99
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
