"""Profiles measured on a sample: what operators do is exact, what they cost is in proportion."""

import asyncio
from typing import Any

import pytest

import tailrace as tr
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import cluster
from tailrace.plan.model.prediction import predict
from tailrace.plan.plan import plan_for
from tailrace.planner import profiler
from tailrace.planner.profiler import in_stretches, profile, weighted
from tailrace.runtime.step import OperatorFailed


def numbers(count: int = 2000) -> tuple[tr.Topology, tr.Stream]:
    topology = tr.Topology("numbers")
    return topology, topology.source(list(range(count)), name="numbers")


def test_selectivity_is_what_comes_out_for_each_record() -> None:
    topology, stream = numbers()
    tripled = stream.flat_map(lambda n: [n] * 3, name="triple")
    tripled.filter(lambda n: n % 2, name="odd").sink(print, name="sink")
    found = profile(topology)
    assert found.of("numbers").work.selectivity == {"main": 1.0}
    assert found.of("triple").work.selectivity == {"main": 3.0}
    assert found.of("odd").work.selectivity == {"main": 0.5}


def test_operators_may_be_called_anything() -> None:
    topology, stream = numbers(100)
    stream.map(str, name="from 0").map(str, name="to 0").sink(print, name="to 1")
    assert profile(topology).of("to 0").work.selectivity == {"main": 1.0}


def test_side_streams_have_selectivities_of_their_own() -> None:
    topology, stream = numbers()
    parts = stream.split(lambda n: "few" if n % 4 == 0 else "many", ["few", "many"], name="split")
    parts["few"].sink(print, name="a")
    parts["many"].sink(print, name="b")
    assert profile(topology).of("split").work.selectivity == {"few": 0.25, "many": 0.75}


def test_inputs_of_an_operator_are_told_apart() -> None:
    class Pass(tr.Operator):
        def process(self, record: Any) -> None:
            if record >= 10_000:
                sum(range(2000))
            if record < 10_000 or record % 2:
                self.emit(record)

    topology, stream = numbers()
    dear = stream.map(lambda n: n + 10_000, name="dear")
    cheap = stream.map(lambda n: n, name="cheap")
    dear.merge(cheap).process(Pass(), name="both").sink(print, name="sink")
    both = profile(topology).of("both")
    assert both.work.selectivity == {"main": 0.75}
    assert both.by_input["cheap"].selectivity == {"main": 1.0}
    assert both.by_input["dear"].selectivity == {"main": 0.5}
    assert both.by_input["dear"].execute_ns > 2 * both.by_input["cheap"].execute_ns


def test_what_comes_at_the_end_counts_for_the_inputs_by_their_records() -> None:
    topology, stream = numbers(1000)
    few = stream.filter(lambda n: n % 4 == 0, name="few")
    all_ = stream.map(lambda n: n, name="all")
    kept = few.merge(all_).key_by(lambda n: n % 10)
    kept.fold(lambda count, _: (count or 0) + 1, name="counts").sink(print, name="sink")
    counts = profile(topology).of("counts")
    assert counts.work.selectivity == {"main": pytest.approx(10 / 1250)}
    assert counts.by_input["few"].selectivity == {"main": pytest.approx(10 / 1250)}


def test_more_work_takes_more_time() -> None:
    topology, stream = numbers(500)
    quick = stream.map(lambda n: n, name="quick")
    quick.map(lambda n: sum(range(5000)), name="slow").sink(print, name="sink")
    found = profile(topology)
    assert found.of("slow").work.execute_ns > 5 * found.of("quick").work.execute_ns


def test_the_spread_is_kept_and_the_median_counts() -> None:
    topology, stream = numbers(4000)
    stream.map(lambda n: sum(range(3000)) if n > 3000 else n, name="uneven").sink(print)
    work = profile(topology).of("uneven").work
    spread = work.percentiles_ns
    assert work.execute_ns == spread[50]
    assert list(spread.values()) == sorted(spread.values())
    assert spread[95] > 5 * spread[50]
    again = profile(topology)
    assert again.at(95).of("uneven").work.execute_ns > 5 * again.of("uneven").work.execute_ns


def test_work_that_comes_now_and_then_is_in_the_median() -> None:
    topology, stream = numbers(16_384)
    stream.map(lambda n: sum(range(100_000)) if n % 512 == 0 else n, name="bursts").sink(print)
    stream.map(lambda n: n, name="even").sink(print, name="other")
    found = profile(topology)
    assert found.of("bursts").work.execute_ns > 5 * found.of("even").work.execute_ns


def test_times_are_for_the_speed_that_the_profile_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "full_speed_ns", lambda seconds: 3e8)
    topology, stream = numbers()
    stream.key_by(lambda n: n).map(str, name="text", parallelism=2).sink(print)
    found = profile(topology)
    source = found.of("numbers")
    assert found.yardstick_ns == 3e8
    # As if lines of the yardstick took 0.3 s each: nothing takes less than a ms.
    assert source.work.execute_ns > 1e6
    assert source.deal_ns["numbers -> text"] > 1e6
    assert source.jumbos["numbers -> text"].encode_ns > 1e6
    assert found.of("text").work.execute_ns > 1e6


def test_dealing_to_several_receivers_is_told_apart() -> None:
    topology, stream = numbers()
    slow_key = stream.key_by(lambda n: sum(range(2000)) + n)
    slow_key.map(lambda n: n, name="dear", parallelism=2).sink(print)
    stream.shuffle().map(lambda n: n, name="cheap", parallelism=2).sink(print, name="other")
    source = profile(topology).of("numbers")
    assert source.deal_ns.keys() == {"numbers -> dear"}
    assert source.deal_ns["numbers -> dear"] > 5 * source.work.execute_ns


def test_sizes_and_jumbos_are_those_that_would_travel() -> None:
    topology = tr.Topology()
    texts = topology.source(["x" * 100] * 1024, name="texts")
    texts.key_by().map(lambda text: text, name="copy", parallelism=2).sink(print)
    found = profile(topology).of("texts")
    assert 100 <= found.record_bytes["main"] < 110
    jumbo = found.jumbos["texts -> copy"]
    assert jumbo.encode_ns > 0
    assert jumbo.records == 256  # all have one key


def test_records_that_cannot_travel_still_have_a_profile() -> None:
    topology, stream = numbers(10)
    stream.map(lambda n: lambda: n, name="functions").sink(print)
    found = profile(topology).of("functions")
    assert found.work.selectivity == {"main": 1.0}
    assert found.jumbos == {}


def test_a_paced_source_is_not_waited_for() -> None:
    seen: list[int] = []
    topology = tr.Topology()
    slow = topology.source(tr.sources.rate(1, lambda i: i), name="slow")
    slow.map(seen.append, name="see").sink(print)
    profile(topology, sample=512)
    assert seen == list(range(512))


def test_a_source_is_read_no_further_than_the_sample() -> None:
    seen: list[int] = []
    topology, stream = numbers(10_000)
    stream.map(seen.append, name="see").sink(print)
    profile(topology, sample=1000)
    assert seen == list(range(1024))  # whole polls


def test_sinks_are_run_only_when_told() -> None:
    seen: list[int] = []
    topology, stream = numbers(100)
    stream.sink(seen.append, name="sink")
    assert "sinks were not run" in profile(topology).note
    assert seen == []
    profile(topology, run_sinks=True)
    assert seen == list(range(100))


def test_windows_are_driven_by_event_time() -> None:
    topology, stream = numbers(1000)
    timed = stream.event_time(lambda n: n, max_delay_s=0)
    windows = timed.key_by(lambda n: 0).window(tr.tumbling(100))
    windows.aggregate(lambda total, n: (total or 0) + n, name="windows").sink(print)
    work = profile(topology).of("windows").work
    assert work.selectivity == {"main": pytest.approx(0.01)}
    assert work.execute_ns > 0


def test_joins_have_work_for_each_side() -> None:
    topology, stream = numbers(1000)
    left = stream.event_time(lambda n: n, max_delay_s=0, name="left time")
    tens = stream.filter(lambda n: n % 10 == 0, name="tens")
    right = tens.event_time(lambda n: n, max_delay_s=0, name="right time")
    joined = left.key_by(lambda n: n).join(
        right.key_by(lambda n: n), within_s=1, function=lambda a, b: (a, b), name="join"
    )
    joined.sink(print)
    join = profile(topology).of("join")
    assert join.by_input.keys() == {"left time", "right time"}
    assert join.work.selectivity["main"] == pytest.approx(100 / 1100)


def test_what_coroutines_give_is_counted() -> None:
    async def soon(n: int) -> int:
        await asyncio.sleep(0)
        return n

    topology, stream = numbers(300)
    stream.async_map(soon, name="soon").sink(print)
    assert profile(topology).of("soon").work.selectivity == {"main": 1.0}


def test_an_operator_that_gets_nothing_is_named() -> None:
    topology, stream = numbers(100)
    stream.filter(lambda n: False, name="none").map(str, name="never").sink(print, name="sink")
    found = profile(topology)
    assert "'never' got no records" in found.note
    assert found.of("never").work.execute_ns == 0


def test_a_record_that_fails_fails_the_profile() -> None:
    topology, stream = numbers(10)
    stream.map(lambda n: 1 // (n - 5), name="divide").sink(print)
    with pytest.raises(OperatorFailed, match="divide"):
        profile(topology)


def test_a_profile_can_be_predicted_with() -> None:
    topology, stream = numbers()
    stream.shuffle().map(str, name="text", parallelism=2).sink(print, name="sink")
    graph: Graph = topology.graph
    machine = cluster(1, cores=2)
    plan = plan_for(graph, machine.workers(), [0, 0, 1], scheduler="by hand", reason="")
    found = predict(graph, plan, profile(graph), machine)
    assert found.throughput == pytest.approx(found.source_rate) != 0


def test_percentiles_count_records_and_not_batches() -> None:
    assert weighted([(1.0, 10), (2.0, 10), (9.0, 80)], [5, 15, 50]) == [1.0, 2.0, 9.0]


def test_batches_in_a_row_make_stretches() -> None:
    assert in_stretches([(1.0, 2), (3.0, 2), (5.0, 4), (9.0, 1)], 4) == [(2, 4), (5, 4), (9, 1)]
