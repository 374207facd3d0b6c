"""Profiles: what is not named has defaults, percentiles can be chosen, files come back."""

from pathlib import Path

import pytest

from tailrace.graph.model import Grouping, Rule, Stream
from tailrace.plan.model.machine import Jumbo
from tailrace.plan.model.profile import OperatorProfile, Profile, Work, input_key

TOLLS = OperatorProfile(
    Work(100.0, {"main": 1.0}, percentiles_ns={5: 90.0, 50: 100.0, 95: 150.0}),
    {"main": 64.0},
    {"accidents": Work(20.0, {"main": 0.0}, memory_bytes=8)},
    {"main": Jumbo(encode_ns=500.0, decode_ns=300.0, records=64.0)},
    {"balances": 70.0},
)


def test_the_work_depends_on_the_input_where_the_profile_says_so() -> None:
    assert TOLLS.work_for("accidents").execute_ns == 20
    assert TOLLS.work_for("reports").execute_ns == 100
    assert TOLLS.work_for(None).execute_ns == 100


def test_an_input_is_called_by_its_producer_and_side_output() -> None:
    shuffle = Grouping(Rule.SHUFFLE)
    assert input_key(Stream("a", "b", shuffle)) == "a"
    assert input_key(Stream("a", "b", shuffle, output="late")) == "a[late]"


def test_another_percentile_can_be_chosen() -> None:
    slow = Profile({"tolls": TOLLS}).at(95).of("tolls")
    assert slow.work.execute_ns == 150
    assert slow.by_input["accidents"].execute_ns == 20


def test_on_slower_cores_every_time_is_longer_and_nothing_else_changes() -> None:
    slow = Profile({"tolls": TOLLS}, yardstick_ns=300.0).at_speed(600.0)
    assert slow.yardstick_ns == 600
    assert slow.of("tolls") == OperatorProfile(
        Work(200.0, {"main": 1.0}, percentiles_ns={5: 180.0, 50: 200.0, 95: 300.0}),
        {"main": 64.0},
        {"accidents": Work(40.0, {"main": 0.0}, memory_bytes=8)},
        {"main": Jumbo(encode_ns=1000.0, decode_ns=600.0, records=64.0)},
        {"balances": 140.0},
    )


@pytest.mark.parametrize(("ours", "theirs"), [(0.0, 600.0), (300.0, 0.0)])
def test_times_stay_where_a_speed_is_not_known(ours: float, theirs: float) -> None:
    profile = Profile({"tolls": TOLLS}, yardstick_ns=ours)
    assert profile.at_speed(theirs) == profile


def test_a_profile_comes_back_from_its_file(tmp_path: Path) -> None:
    profile = Profile({"tolls": TOLLS}, note="by hand", yardstick_ns=300.0)
    profile.save(tmp_path / "profile.json")
    assert Profile.load(tmp_path / "profile.json") == profile


def test_an_operator_without_a_profile_is_named() -> None:
    with pytest.raises(KeyError, match="no operator 'sink'; it has \\['tolls'\\]"):
        Profile({"tolls": TOLLS}).of("sink")
