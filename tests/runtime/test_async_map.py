import asyncio
import pickle
import threading
from typing import Any

import pytest

from tailrace import Topology
from tailrace.graph.validate import TopologyError
from tailrace.runtime.async_map import AsyncMap
from tailrace.runtime.core import Limits
from tailrace.runtime.markers import IDLE
from tailrace.runtime.state import Stateful
from tailrace.runtime.step import OperatorFailed
from tailrace.runtime.windows import tumbling
from tailrace.testing import collect, run
from tests.runtime.timed import Bench


async def doubled(number: int) -> int:
    for _ in range(number * 7 % 5):  # so that they end in another order than they started
        await asyncio.sleep(0)
    return number * 2


async def never(number: int) -> int:
    await asyncio.Event().wait()
    return number


async def reciprocal(number: int) -> float:
    await asyncio.sleep(0)
    return 1 / number


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("concurrency", [1, 4, 1000])
@pytest.mark.parametrize("ordered", [True, False])
def test_every_record_has_one_result(
    ordered: bool, concurrency: int, workers: int, seed: int
) -> None:
    topology = Topology()
    stream = topology.source(range(500))
    stream = stream.async_map(doubled, concurrency=concurrency, ordered=ordered)
    results = collect(stream)
    limits = Limits(window_records=64, gathered_records=16, poll_records=8, round_messages=4)
    report = run(topology, workers=workers, seed=seed, limits=limits)
    assert sorted(results) == [2 * number for number in range(500)]
    if ordered:
        assert results == sorted(results)
    assert report.records_in["async_map"] == report.records_in["sink"] == 500


def test_parallel_instances_have_loops_of_their_own() -> None:
    threads = set()

    async def note_thread(number: int) -> int:
        threads.add(threading.current_thread().name)
        return number

    topology = Topology()
    results = collect(topology.source(range(100), parallelism=3).async_map(note_thread))
    run(topology, workers=2)
    assert sorted(results) == list(range(100))
    assert threads == {"async_map 0", "async_map 1", "async_map 2"}
    assert not threads & {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("ordered", [True, False])
def test_records_in_flight_are_bounded(ordered: bool) -> None:
    running = peak = 0

    async def count(number: int) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await doubled(number)
        running -= 1
        return number

    topology = Topology()
    results = collect(topology.source(range(300)).async_map(count, concurrency=7, ordered=ordered))
    run(topology)
    assert len(results) == 300
    assert 1 < peak <= 7


def test_records_wait_beside_each_other_and_not_one_after_the_other() -> None:
    waiting: list[asyncio.Future[None]] = []

    async def wait_for_the_tenth(number: int) -> int:
        future = asyncio.get_running_loop().create_future()
        waiting.append(future)
        if len(waiting) == 10:
            for one in waiting:
                one.set_result(None)
            waiting.clear()
        await future
        return number

    topology = Topology()
    results = collect(topology.source(range(50)).async_map(wait_for_the_tenth, concurrency=10))
    run(topology, limits=Limits(poll_records=4))
    assert results == list(range(50))


def test_a_full_step_takes_no_more_until_there_is_room() -> None:
    with Stepped(AsyncMap(doubled, 3)) as stepped:
        stepped.process([1, 2, 3])
        assert stepped.load == (False, 3)
        stepped.process([4, 5])
        assert stepped.load == (True, 5)
        stepped.complete()
        assert stepped.load == (False, 0)
        assert stepped.bench.out["main"] == [2, 4, 6, 8, 10]


def test_a_coroutine_that_raises_fails_the_job_with_its_record() -> None:
    topology = Topology()
    collect(topology.source([2, 1, 0, 4]).async_map(reciprocal, name="divide"))
    with pytest.raises(OperatorFailed, match="'divide' failed on 0: ZeroDivisionError") as failed:
        run(topology)
    assert isinstance(failed.value.error, ZeroDivisionError)
    assert "divide 0" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("ordered", [True, False])
def test_records_that_fail_are_skipped_or_kept_apart_by_policy(ordered: bool) -> None:
    topology = Topology()
    source = topology.source([4, 0, 2, 0, 1])
    skipped = collect(source.async_map(reciprocal, ordered=ordered, on_error="skip", name="skip"))
    stream = source.async_map(reciprocal, ordered=ordered, on_error="dead letter", name="dead")
    kept, dead = collect(stream), collect(stream.dead_letters())
    report = run(topology)
    assert sorted(skipped) == sorted(kept) == [0.25, 0.5, 1.0]
    assert dead == [(0, "ZeroDivisionError('division by zero')")] * 2
    assert report.skipped["skip"] == report.skipped["dead"] == 2


def test_a_coroutine_that_takes_too_long_is_an_error_of_its_record() -> None:
    topology = Topology()
    collect(topology.source([7]).async_map(never, timeout_s=0.001))
    with pytest.raises(OperatorFailed, match=r"on 7: TimeoutError\('no result within 0.001 s'"):
        run(topology)


def test_a_coroutine_cancelled_by_itself_is_an_error_of_its_record() -> None:
    async def cancel(number: int) -> int:
        raise asyncio.CancelledError

    topology = Topology()
    results = collect(topology.source([7]).async_map(cancel, on_error="skip"))
    assert run(topology).skipped["async_map"] == 1
    assert results == []


class Stepped:
    """A step and its side thread; the test is the worker."""

    def __init__(self, logic: AsyncMap) -> None:
        self.bench = Bench()
        self._woken = threading.Semaphore(0)
        self.bench.wake = self._woken.release
        self.step = logic.start(self.bench.context())

    def process(self, records: list[Any], emitted_ns: int = 0) -> None:
        self.bench.emitted_ns = emitted_ns
        self.step.process(iter(records), 0)

    @property
    def load(self) -> tuple[bool, int]:
        return self.step.busy, self.step.outstanding

    def wait(self) -> None:
        self._woken.acquire()
        self.step.on_wake()

    def complete(self) -> None:
        while self.step.outstanding:
            self.wait()

    def __enter__(self) -> "Stepped":
        return self

    def __exit__(self, *_: object) -> None:
        self.step.close()


@pytest.mark.parametrize("ordered", [True, False])
def test_each_result_keeps_the_time_of_its_emission(ordered: bool) -> None:
    with Stepped(AsyncMap(doubled, 4, ordered)) as stepped:
        for number in range(20):
            stepped.process([number], emitted_ns=1000 + number // 2)
        stepped.complete()
    emitted = [
        (emitted_ns, result)
        for what, (emitted_ns, records) in stepped.bench.log
        for result in records
    ]
    assert sorted(emitted) == [(1000 + number // 2, 2 * number) for number in range(20)]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_watermark_stays_behind_the_records_it_follows(ordered: bool) -> None:
    with Stepped(AsyncMap(doubled, 4, ordered)) as stepped:
        stepped.step.advance(-2)
        for number in range(20):
            stepped.process([number])
            stepped.step.advance(number - 1)
            stepped.step.advance(number)
        stepped.step.advance(IDLE)
        stepped.complete()
    seen: set[int] = set()
    watermarks = []
    for what, value in stepped.bench.log:
        if what == "watermark":
            watermarks.append(value)
            before = range(20) if value == IDLE else range(value + 1)
            assert {2 * number for number in before} <= seen
        else:
            seen.update(value[1])
    assert watermarks == [-2, *range(20), IDLE]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("done", [0, 1, 7])
def test_records_in_flight_go_on_elsewhere(ordered: bool, done: int) -> None:
    gate = asyncio.Semaphore(done)

    async def gated(number: int) -> int:
        await gate.acquire()
        return number * 2

    with Stepped(AsyncMap(gated, 4, ordered)) as first:
        for number in range(12):
            first.process([number], emitted_ns=1000 + number)
            first.step.advance(number)
        while first.step.outstanding > 12 - done:
            first.wait()
        assert isinstance(first.step, Stateful)
        shared = pickle.loads(pickle.dumps(first.step.shared()))
    with Stepped(AsyncMap(doubled, 4, ordered)) as second:
        assert isinstance(second.step, Stateful)
        second.step.put_shared(shared)
        second.complete()
    log = first.bench.log + second.bench.log
    results = [
        (emitted_ns, result)
        for what, value in log
        if what == "main"
        for emitted_ns, results in [value]
        for result in results
    ]
    assert sorted(results) == [(1000 + number, 2 * number) for number in range(12)]
    assert results == sorted(results) or not ordered
    watermarks = [value for what, value in log if what == "watermark"]
    assert watermarks == sorted(watermarks)
    assert watermarks[-1] == 11


def test_windows_behind_an_async_map_find_nothing_late() -> None:
    topology = Topology()
    events = topology.source(range(400), parallelism=2).event_time(float, max_delay_s=2)
    changed = events.async_map(doubled, ordered=False, concurrency=32).event_time(
        lambda number: number / 2
    )
    counts = changed.key_by(lambda number: number % 6).window(tumbling(10))
    results = collect(counts.aggregate(lambda count, _: count + 1, 0, parallelism=3))
    report = run(topology, workers=3, limits=Limits(poll_records=5))
    assert report.late["window"] == 0
    assert sum(result.value for result in results) == 400
    assert len(results) == 40 * 3


def test_closing_cancels_what_is_in_flight() -> None:
    with Stepped(AsyncMap(never, 10)) as stepped:
        stepped.process([1, 2, 3])
    assert "tested 0" not in {thread.name for thread in threading.enumerate()}
    assert stepped.bench.out == {}


class Increment:
    async def __call__(self, number: int) -> int:
        return number + 1


def test_an_object_with_an_asynchronous_call_will_do() -> None:
    topology = Topology()
    results = collect(topology.source([1, 2]).async_map(Increment()))
    run(topology)
    assert results == [2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency of async_map is 0"),
        ({"concurrency": 2.5}, "concurrency of async_map is 2.5"),
        ({"timeout_s": 0}, "timeout_s of async_map is 0"),
        ({"function": abs}, r"async_map got <built-in function abs>; .* use .map\(\)"),
        ({"function": 5}, "async_map got 5"),
    ],
)
def test_what_cannot_work_is_refused_when_the_topology_is_built(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        Topology().source([1]).async_map(**{"function": doubled, **options})
