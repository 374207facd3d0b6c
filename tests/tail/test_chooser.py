"""The chooser under virtual time: what it tries, keeps and leaves, over seeds of noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import geometric_mean

import pytest

from tailrace.tail.chooser import Chooser, Decision
from tailrace.tail.conditions import OFF_SETTING, Period, Receiving, Setting, Thresholds, by_table
from tailrace.tail.soonest import Soonest
from tests.seeds import seeds
from tests.tail.simulation import InTurn, simulate

STREAM = "source -> work"
EVEN = Receiving(busy=0.3, uneven=1.05, workers=4, shareable=True)
BUSY = replace(EVEN, busy=0.8)
UNEVEN = replace(EVEN, busy=0.6, uneven=2.0)
SEEDS = range(seeds(20))


def kind(setting: Setting) -> str:
    """One word for all that is on."""
    return "replay" if setting.replay else setting.modes[0][1] if setting.modes else "off"


@dataclass
class Life:
    """A job of one stream, whose p99 under each technique is known, with noise."""

    p99s_ms: Mapping[str, float]
    receiving: Receiving
    seed: int = 0
    noise: float = 0.05
    p50_ms: float = 1.0
    replayable: bool = True
    accidents: float = 0.0
    """How many of the periods have other programs in them, and a p99 that says nothing."""
    chooser: Chooser = field(default_factory=Chooser)
    now_s: float = 0.0
    on_s: dict[str, float] = field(default_factory=dict)
    history: list[tuple[float, str]] = field(default_factory=list)
    """When what was turned on."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    @property
    def on(self) -> str:
        return kind(self.chooser.present)

    def period(self) -> Decision:
        chooser = self.chooser
        took_s = chooser.period_s + chooser.settle_s
        self.now_s += took_s
        self.on_s[self.on] = self.on_s.get(self.on, 0.0) + took_s
        p99_ms = self.p99s_ms[self.on] * self.chance.lognormvariate(0.0, self.noise)
        if self.chance.random() < self.accidents:
            p99_ms *= self.chance.uniform(2.0, 6.0)
        seen = {STREAM: self.receiving}
        period = Period(self.p50_ms, p99_ms, self.receiving.busy, seen, replayable=self.replayable)
        decision = chooser.decide(self.now_s, period)
        if decision.setting is not None:
            self.history.append((self.now_s, self.on))
        return decision

    def run(self, seconds: float) -> Life:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.period()
        return self


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("receiving", "p50_ms", "best"),
    [(UNEVEN, 4.0, "balance"), (BUSY, 4.0, "shared"), (EVEN, 1.0, "replay")],
)
def test_what_helps_is_on_soon_and_stays(
    receiving: Receiving, p50_ms: float, best: str, seed: int
) -> None:
    p99s = {"off": 12.0, "balance": 11.5, "shared": 11.5, "replay": 11.5, best: 7.0}
    life = Life(p99s, receiving, seed, p50_ms=p50_ms).run(60)
    assert life.on == best
    life.on_s.clear()
    life.run(3600)
    assert life.on_s[best] > 0.9 * 3600


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("noise", [0.08, 0.2])
def test_what_helps_is_found_by_noisy_periods_with_accidents_in_between(
    noise: float, seed: int
) -> None:
    p99s = {"off": 12.0, "balance": 8.0, "shared": 11.0, "replay": 13.0}
    life = Life(p99s, UNEVEN, seed, noise, accidents=0.1).run(300)
    life.on_s.clear()
    life.run(3600)
    assert life.on_s["balance"] > 0.6 * 3600


def test_one_accident_does_not_turn_off_what_helps() -> None:
    life = Life({"off": 12.0, "balance": 7.0, "shared": 12.0, "replay": 12.0}, UNEVEN, noise=0.0)
    life.run(60)
    usual, life.p99s_ms = life.p99s_ms, {**life.p99s_ms, "balance": 50.0}
    assert "above the 12 ms without" in life.period().reason
    life.p99s_ms = usual
    on = []
    for _ in range(3):
        life.period()
        on.append(life.on)
    assert on == ["balance"] * 3, "off was no better than what it is like otherwise"


def test_a_first_look_in_which_an_accident_happens_is_not_the_last() -> None:
    life = Life({"off": 12.0, "balance": 50.0, "shared": 12.0, "replay": 12.0}, UNEVEN, noise=0.0)
    while life.on == "off":
        life.period()
    assert "to compare" in life.period().reason
    assert life.on == "off", "what was worse is on for one period only"
    life.p99s_ms = {**life.p99s_ms, "balance": 6.0}
    life.run(20)
    assert life.on == "balance"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("receiving", [EVEN, BUSY, UNEVEN])
def test_what_makes_it_worse_is_on_for_a_period_and_ever_more_rarely(
    receiving: Receiving, seed: int
) -> None:
    p99s = {"off": 10.0, "balance": 20.0, "shared": 15.0, "replay": 14.0}
    life = Life(p99s, receiving, seed)
    longest = 0
    running = 0
    while life.now_s < 4 * 3600:
        life.period()
        running = running + 1 if life.on != "off" else 0
        longest = max(longest, running)
    assert longest <= 1, "a trial is undone after its period"
    turned_on = [at_s for at_s, on in life.history if on != "off"]
    techniques = 3
    # 60, 120, ... 3600 s: at most 1 + log2(60) tries in the first two hours, then one an hour.
    assert 1 <= len(turned_on) <= techniques * (7 + 4)
    assert life.on_s["off"] > 0.97 * life.now_s


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_noise_alone_does_not_swing_it(noise: float, seed: int) -> None:
    p99s = dict.fromkeys(("off", "balance", "shared", "replay"), 10.0)
    life = Life(p99s, BUSY, seed, noise).run(4 * 3600)
    assert len(life.history) <= 60, "a change every four minutes at most, in four hours"


@pytest.mark.parametrize("seed", SEEDS)
def test_streams_around_a_limit_do_not_swing_it(seed: int) -> None:
    chance, chooser = random.Random(seed), Chooser()
    now_s, changes = 0.0, 0
    while now_s < 3600:
        now_s += chooser.period_s + chooser.settle_s
        streams = {
            name: replace(EVEN, busy=chance.uniform(0.1, 0.6), uneven=chance.uniform(1.0, 1.5))
            for name in "abcd"
        }
        period = Period(4.0, 10.0 * chance.lognormvariate(0.0, 0.1), 0.3, streams)
        changes += chooser.decide(now_s, period).setting is not None
    # Five kinds (each way to deal, both, fewer, off), 60, 120, ... s apart: on, and off again; and
    # once more at first.
    assert changes <= 2 * 5 * (6 + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_on_is_left_when_it_has_become_worse_than_without(seed: int) -> None:
    life = Life({"off": 12.0, "balance": 7.0, "shared": 12.0, "replay": 12.0}, UNEVEN, seed)
    life.run(60)
    assert life.on == "balance"
    life.p99s_ms = {**life.p99s_ms, "balance": 20.0}
    life.on_s.clear()
    life.run(120)
    assert life.on != "balance"
    periods = life.on_s["balance"] / (life.chooser.least_s * 1.25)
    assert periods <= 3, "the one in which it is seen, and the look at the other first"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_no_longer_needed_is_turned_off(seed: int) -> None:
    life = Life({"off": 12.0, "balance": 7.0, "shared": 12.0, "replay": 12.0}, UNEVEN, seed)
    life.run(60)
    life.receiving, life.p99s_ms = replace(EVEN, busy=0.05), dict.fromkeys(life.p99s_ms, 2.0)
    life.run(60)
    assert life.on == "off"


def test_a_load_that_grows_is_no_reason_to_turn_off_what_helps() -> None:
    life = Life({"off": 12.0, "balance": 7.0, "shared": 12.0, "replay": 12.0}, UNEVEN)
    life.run(60)
    life.p99s_ms = {"off": 60.0, "balance": 30.0, "shared": 60.0, "replay": 60.0}
    life.run(300)
    life.on_s.clear()
    life.run(1800)
    assert life.on_s["balance"] > 0.9 * 1800, "without was tried, and is worse still"


def test_all_that_the_conditions_allow_is_compared_and_the_best_kept() -> None:
    life = Life({"off": 12.0, "balance": 8.0, "shared": 6.0, "replay": 12.0}, UNEVEN, noise=0.01)
    life.run(120)
    assert [on for _, on in life.history[:2]] == ["balance", "shared"]
    assert life.on == "shared"


def test_a_period_gets_longer_where_periods_differ_much_and_shorter_again() -> None:
    p99s = dict.fromkeys(("off", "balance", "shared", "replay"), 10.0)
    life = Life(p99s, replace(EVEN, busy=0.1), noise=0.6, replayable=False).run(600)
    assert life.chooser.period_s > 3 * life.chooser.least_s
    life.noise = 0.01
    life.run(600)
    assert life.chooser.period_s == life.chooser.least_s


def test_by_how_much_it_must_be_better_follows_from_how_many_latencies_there_are() -> None:
    margins = []
    for records in (200, 1_000, 100_000):
        chooser = Chooser()
        chooser.decide(0.0, Period(1.0, 2.0, 0.1, {}, records))
        margins.append(round(chooser.margin, 2))
    assert margins == [0.31, 0.15, 0.11], "0.11 until periods have shown how much they differ"


def test_where_one_stream_gives_reason_all_that_have_queues_are_tried() -> None:
    streams = {"a": UNEVEN, "b": EVEN, "c": BUSY, "d": replace(EVEN, busy=0.01)}
    chooser = Chooser()
    for now_s in (2.0, 4.0):
        decision = chooser.decide(now_s, Period(5.0, 10.0, 0.5, streams))
    assert decision.setting == Setting.of({"a": "balance", "b": "balance", "c": "shared"})


def test_replay_is_tried_beside_what_is_on_and_not_in_its_place() -> None:
    life = Life({"off": 12.0, "balance": 9.0, "shared": 12.0, "replay": 4.0}, UNEVEN, noise=0.0)
    life.receiving = replace(UNEVEN, busy=0.3)
    life.run(60)
    assert life.chooser.present == Setting.of({STREAM: "balance"}, replay=True)


def test_while_the_p99_drifts_nothing_is_tried_for_some_periods() -> None:
    life = Life(dict.fromkeys(("off", "balance", "shared", "replay"), 64.0), UNEVEN, noise=0.0)
    for _ in range(4):  # a job that has just begun
        life.period()
        life.p99s_ms = {name: p99_ms / 2 for name, p99_ms in life.p99s_ms.items()}
    assert not life.history
    for _ in range(4):
        life.period()
    assert life.history


def test_a_period_waits_for_enough_records_but_not_for_ever() -> None:
    chooser = Chooser(least_s=2.0, most_s=30.0, records=1000)
    assert not chooser.due(1.9, 5000)
    assert not chooser.due(2.0, 999)
    assert chooser.due(2.0, 1000)
    assert chooser.due(30.0, 5)


def test_nothing_counts_until_what_was_under_way_at_a_change_has_left() -> None:
    life = Life(dict.fromkeys(("off", "balance", "shared", "replay"), 4000.0), UNEVEN, noise=0.0)
    life.period()
    assert life.chooser.settle_s == pytest.approx(6.0)
    life.p99s_ms = dict.fromkeys(life.p99s_ms, 1e6)
    life.period()
    assert life.chooser.settle_s == life.chooser.most_s


def test_a_stream_that_somebody_has_taken_over_is_let_be() -> None:
    life = Life({"off": 12.0, "balance": 7.0, "shared": 12.0, "replay": 12.0}, UNEVEN).run(60)
    life.chooser.manage(frozenset(), replay=True)
    assert life.chooser.present == OFF_SETTING


def test_a_trial_that_was_interrupted_is_judged_by_what_comes_after() -> None:
    life = Life({"off": 12.0, "balance": 7.0, "shared": 12.0, "replay": 12.0}, UNEVEN)
    while life.on == "off":
        life.period()
    life.chooser.interrupted()
    assert life.on == "balance"
    assert "7" in life.period().reason.partition(" before, ")[2]
    assert life.on == "balance"


def test_reasons_have_the_figures_that_speak_for_them() -> None:
    life = Life({"off": 12.0, "balance": 7.0, "shared": 12.0, "replay": 12.0}, UNEVEN, noise=0.0)
    told = [life.period().reason for _ in range(3)]
    assert told[0] == "off: nothing is known to help; looked at for 1 periods"
    assert told[1] == (
        "tries balance (source -> work): source -> work: receivers 60% busy, the slowest 2.0 times"
        " as slow as the fastest"
    )
    assert told[2].endswith("; p99 12 ms before, 7 ms with it")


@pytest.mark.parametrize(
    ("receiving", "mode"),
    [
        (UNEVEN, "balance"),
        (BUSY, "shared"),
        (replace(BUSY, shareable=False), "balance"),
        (replace(BUSY, workers=1), None),
        (EVEN, None),
        (replace(EVEN, busy=0.4), "balance"),
        (replace(UNEVEN, busy=0.05), "balance"),
        (replace(UNEVEN, busy=0.01), None),
    ],
)
def test_the_table_of_conditions(receiving: Receiving, mode: str | None) -> None:
    period = Period(1.0, 2.0, receiving.busy, {STREAM: receiving})
    assert by_table(period, Thresholds()).get(STREAM) == mode


def test_replay_needs_another_way_room_and_a_long_tail() -> None:
    def tried(**changes: object) -> bool:
        life = Life(dict.fromkeys(("off", "balance", "shared", "replay"), 12.0), EVEN, noise=0.0)
        for name, value in changes.items():
            setattr(life, name, value)
        life.run(20)
        return any(on == "replay" for _, on in life.history)

    assert tried()
    assert not tried(replayable=False)
    assert not tried(receiving=replace(EVEN, busy=0.7, workers=1))
    assert not tried(p50_ms=2.0)
    quick = {"off": 1.2, "balance": 1.2, "shared": 1.2, "replay": 1.2}
    assert not tried(p50_ms=0.1, p99s_ms=quick), "over before a copy would be there"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tail_little_longer_than_of_exponential_times_is_no_word_for_replay(seed: int) -> None:
    """Where nothing is stuck, a little worse is what it makes it; noise must not have it stay."""
    p99s = {"off": 8.0, "balance": 8.1, "shared": 8.1, "replay": 8.4}
    life = Life(p99s, replace(EVEN, busy=0.1), seed).run(300)
    assert "replay" in {on for _, on in life.history}, "it is worth a look"
    assert life.on_s["replay"] < 0.2 * life.now_s


def test_unevenness_that_balancing_did_not_help_is_no_reason_the_next_time() -> None:
    thresholds = Thresholds()
    setting = Setting.of({STREAM: "balance"})
    period = Period(1.0, 2.0, 0.6, {STREAM: UNEVEN})
    thresholds.wrong(setting, period)
    assert thresholds.uneven(STREAM) == pytest.approx(1.6)
    thresholds.right(setting)
    assert thresholds.uneven(STREAM) == pytest.approx(1.4)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"least_s": 0.0}, "least_s is 0.0 and most_s 30.0; a period is longer than 0"),
        ({"least_s": 40.0}, "least_s is 40.0 and most_s 30.0"),
        ({"again_s": 0.0}, "again_s is 0.0 and most_again_s 3600.0"),
        ({"records": 10}, "records is 10; a p99 needs at least 100"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Chooser(**options)  # type: ignore[arg-type]


POLICIES: dict[str, Callable[[int], object] | None] = {
    "off": lambda seed: InTurn(),
    "balance": lambda seed: Soonest(random.Random(seed)),
    "shared": None,
}


@pytest.mark.parametrize(
    ("means_ms", "utilisation"),
    [((2.0,) * 4, 0.3), ((2.0,) * 4, 0.8), ((2.0, 2.0, 2.0, 6.0), 0.55), ((1.0, 4.0), 0.7)],
)
def test_in_queues_that_are_simulated_it_is_as_good_as_the_best(
    means_ms: tuple[float, ...], utilisation: float
) -> None:
    """Each period is a run of its own: p99s are those of real queues, with their own noise."""
    life = Life({}, EVEN, noise=0.0, replayable=False)
    pool: dict[str, list[float]] = {
        name: [
            simulate(
                policy,  # type: ignore[arg-type]
                means_ms=means_ms,
                utilisation=utilisation,
                records=4000,
                way_ms=0.1,
                seed=seed,
            ).percentile_ms(99)
            for seed in range(12)
        ]
        for name, policy in POLICIES.items()
    }
    mean = {name: sum(p99s) / len(p99s) for name, p99s in pool.items()}
    uneven = max(means_ms) / min(means_ms)
    life.receiving = Receiving(utilisation, uneven, len(means_ms), shareable=True)
    spent = []
    for _ in range(400):
        life.p99s_ms = {name: life.chance.choice(p99s) for name, p99s in pool.items()}
        spent.append(mean[life.on])
        life.period()
    assert geometric_mean(spent) <= 1.1 * min(mean.values()), (mean, life.history)
