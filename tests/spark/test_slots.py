"""How many workers a Spark can have, by its settings, and what is said when it cannot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tailrace as tr
from tailrace.graph.wiring import Wiring, wire
from tailrace.spark.classic import Classic
from tailrace.spark.cluster import check_barrier
from tailrace.spark.executors import Executor, answering, at, silent
from tailrace.spark.launch import why_missing
from tailrace.spark.slots import count_workers, most_slots, scales
from tests.spark.standalone import free_port

SCALING = {"spark.dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize(
    ("master", "settings", "most"),
    [
        ("spark://h:7077", {}, None),
        ("spark://h:7077", {"spark.executor.instances": "3"}, None),
        ("spark://h:7077", {"spark.cores.max": "8", "spark.task.cpus": "2"}, 4),
        ("yarn", {}, 2),
        ("yarn", {"spark.executor.instances": "5", "spark.executor.cores": "4"}, 20),
        ("k8s://h", {"spark.executor.cores": "4", "spark.task.cpus": "3"}, 2),
        ("local-cluster[2, 3, 1024]", {}, 6),
        ("yarn", SCALING, None),
        ("yarn", {**SCALING, "spark.dynamicAllocation.maxExecutors": "2147483647"}, None),
        ("yarn", {**SCALING, "spark.dynamicAllocation.maxExecutors": "7"}, 7),
        ("spark://h:7077", {**SCALING, "spark.dynamicAllocation.maxExecutors": "7"}, None),
        (
            "spark://h:7077",
            {
                **SCALING,
                "spark.dynamicAllocation.maxExecutors": "7",
                "spark.executor.cores": "2",
                "spark.cores.max": "9",
            },
            9,
        ),
    ],
)
def test_the_most_slots_are_what_the_settings_bound(
    master: str, settings: dict[str, str], most: int | None
) -> None:
    assert most_slots(master, settings) == most


def test_a_cluster_scales_by_itself_only_if_it_says_so() -> None:
    assert scales(SCALING)
    assert not scales({})
    assert not scales({"spark.dynamicAllocation.enabled": "False"})


def spark_with(slots: int, **options: Any) -> Any:
    waited: list[int] = []

    def counted(wanted: int) -> int:
        waited.append(wanted)
        return slots

    made = {"is_local": False, "scales": False, "most": lambda: None, **options}
    return SimpleNamespace(slots=counted, waited=waited, **made)


def wiring(instances: int) -> Wiring:
    topology = tr.Topology()
    topology.source([1], parallelism=instances).sink(print)
    return wire(topology.graph)


def test_too_many_workers_are_refused_without_waiting_where_the_most_is_known() -> None:
    cluster = spark_with(2, most=lambda: 4)
    with pytest.raises(ValueError, match="9 workers were asked for; this Spark has 4 task slots"):
        count_workers(cluster, wiring(1), 9)
    assert cluster.waited == []


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"is_local": True}, r"start Spark with more slots: local\[9\]"),
        ({}, "give it more: spark.executor.instances, spark.executor.cores or spark.cores.max"),
        ({"scales": True}, "raise spark.dynamicAllocation.maxExecutors or spark.executor.cores"),
    ],
)
def test_the_remedy_is_one_for_this_kind_of_spark(options: dict[str, bool], remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy) as refusal:
        count_workers(spark_with(4, **options), wiring(1), 9)
    assert ("local[" in str(refusal.value)) == bool(options.get("is_local"))


def test_without_a_wish_there_are_as_many_workers_as_are_of_use() -> None:
    assert count_workers(spark_with(8), wiring(3), None) == 3
    assert count_workers(spark_with(2), wiring(3), None) == 2
    assert count_workers(spark_with(8), wiring(8), None, ["rows"]) == 7


def test_what_needs_a_barrier_is_refused_where_spark_has_none() -> None:
    check_barrier(spark_with(1), "transform")
    with pytest.raises(ValueError, match=r"^transform needs .* set it to false for the session"):
        check_barrier(spark_with(1, scales=True), "transform")


def test_hosts_that_do_not_answer_are_told_from_processes_that_are_gone() -> None:
    assert answering("127.0.0.1", free_port(), 1.0)  # the host says that nobody is there
    one, other = Executor("0", "here", 1), Executor("1", "gone", 2)
    assert silent([one, other], lambda host, _: host == "here") == [other]
    assert silent([]) == []


def test_executors_are_found_by_the_name_or_the_address_of_their_host() -> None:
    one, other = Executor("0", "localhost", 1), Executor("1", "10.9.8.7", 2)
    assert at([one, other], ["127.0.0.1"]) == [one]
    assert at([one, other], ["10.9.8.7"]) == [other]


class Java:
    """A JVM that counts executors by an interface of its own, which may change."""

    def __init__(self, kills: bool = True) -> None:
        self.killed: list[str] = []
        self._kills = kills

    def sc(self) -> Java:
        return self

    def statusStore(self) -> Any:  # noqa: N802
        rows = [("driver", "here:1"), ("0", "127.0.0.1:7"), ("1", "10.9.8.7:7"), ("2", "odd")]
        listed = [SimpleNamespace(id=lambda n=n: n, hostPort=lambda at=at: at) for n, at in rows]
        found = SimpleNamespace(size=lambda: len(listed), apply=listed.__getitem__)
        return SimpleNamespace(executorList=lambda active: found)

    def killAndReplaceExecutor(self, executor: str) -> bool:  # noqa: N802
        if not self._kills:
            raise AttributeError("killAndReplaceExecutor")
        self.killed.append(executor)
        return True


def standalone(java: Java) -> Classic:
    context = SimpleNamespace(master="spark://h:7077", _jsc=java)
    return Classic(SimpleNamespace(sparkContext=context))


def test_executors_on_silent_hosts_are_given_up_and_the_user_hears_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    java = Java()
    standalone(java).forget(["10.9.8.7"])
    assert java.killed == ["1"]
    assert "no answer from 10.9.8.7: the executors there are given up" in caplog.text


def test_a_spark_that_gives_nothing_up_is_said_to_do_so(caplog: pytest.LogCaptureFixture) -> None:
    standalone(Java(kills=False)).forget(["10.9.8.7"])
    assert "no answer from 10.9.8.7, and Spark does not give it up" in caplog.text


def test_workers_that_do_not_start_are_told_what_for_and_what_to_do() -> None:
    gone = why_missing(False, ["10.0.0.3"])
    assert "Spark still counts the executors on 10.0.0.3, which do not answer" in gone
    assert "spark.network.timeout=10s" in gone
    assert "spark.dynamicAllocation.maxExecutors" in why_missing(True, [])
    assert "other jobs may hold Spark's task slots" in why_missing(False, [])
