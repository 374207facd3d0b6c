"""Building topologies: names, defaults, and what is refused at once."""

import inspect
import operator
import random
import re
from typing import Any

import pytest

import tailrace as tr
from tailrace.graph.model import Rule
from tailrace.testing import collect, run


def rules(topology: tr.Topology) -> dict[str, Rule]:
    return {stream.label: stream.grouping.rule for stream in topology.graph.streams}


def test_operators_without_names_are_numbered() -> None:
    topology = tr.Topology()
    topology.source([1]).map(abs).map(abs).map(abs).sink(print)
    topology.source([2]).sink(print)
    names = [operator.name for operator in topology.graph.operators]
    assert names == ["source", "map", "map 2", "map 3", "sink", "source 2", "sink 2"]


def test_a_name_that_was_given_twice_is_refused() -> None:
    topology = tr.Topology()
    stream = topology.source([1], name="in").map(abs, name="clean")
    with pytest.raises(tr.TopologyError, match="there is an operator 'clean' already"):
        stream.filter(bool, name="clean")
    with pytest.raises(tr.TopologyError, match="there is an operator 'in' already"):
        topology.source([2], name="in")


@pytest.mark.parametrize("parallelism", [0, -3, 1.5, 2.0, "2", True])
def test_parallelism_is_a_whole_number_of_at_least_one(parallelism: Any) -> None:
    topology = tr.Topology()
    message = f"parallelism of 'map' is {parallelism!r}; it must be a whole number, at least 1"
    with pytest.raises(tr.TopologyError, match=re.escape(message)):
        topology.source([1]).map(abs, parallelism=parallelism)
    with pytest.raises(tr.TopologyError, match="parallelism of 'in'"):
        topology.source([1], name="in", parallelism=parallelism)


def test_a_whole_number_of_another_type_becomes_an_int() -> None:
    class Three:
        def __index__(self) -> int:
            return 3

    topology = tr.Topology()
    parallelism: Any = Three()
    topology.source([1], parallelism=parallelism).map(abs).sink(print)
    assert [operator.parallelism for operator in topology.graph.operators] == [3, 3, 3]


def test_parallelism_is_that_of_the_operator_before() -> None:
    topology = tr.Topology()
    topology.source([1], parallelism=3).map(abs).key_by().scan(lambda s, r: r).sink(print)
    assert {operator.parallelism for operator in topology.graph.operators} == {3}


def test_streams_are_forwarded_between_equals_and_else_shuffled() -> None:
    topology = tr.Topology()
    topology.source([1]).map(abs).filter(bool, parallelism=2).sink(print)
    assert rules(topology) == {
        "source -> map": Rule.FORWARD,
        "map -> filter": Rule.SHUFFLE,
        "filter -> sink": Rule.FORWARD,
    }


@pytest.mark.parametrize(
    ("method", "arguments", "rule"),
    [
        ("shuffle", [], Rule.SHUFFLE),
        ("local_or_shuffle", [], Rule.LOCAL_OR_SHUFFLE),
        ("broadcast", [], Rule.ALL),
        ("gather", [], Rule.GLOBAL),
        ("partition_by", [lambda record, n: 0], Rule.CUSTOM),
        ("key_by", [], Rule.KEY),
        ("partial_key_by", [str], Rule.PARTIAL_KEY),
    ],
)
def test_groupings_say_how(method: str, arguments: list[Any], rule: Rule) -> None:
    topology = tr.Topology()
    getattr(topology.source([1]), method)(*arguments).map(abs).sink(print)
    assert rules(topology)["source -> map"] is rule


@pytest.mark.parametrize("option", [{"name": "read again"}, {"idle_s": 3}])
def test_event_time_that_goes_on_takes_no_options(option: dict[str, Any]) -> None:
    stream = tr.Topology().source([1]).event_time(abs, max_delay_s=0).map(str)
    stream.event_time(int)
    with pytest.raises(tr.TopologyError, match=f"got {next(iter(option))} without max_delay_s"):
        stream.event_time(int, **option)


def test_an_unknown_error_policy_names_those_there_are() -> None:
    with pytest.raises(tr.TopologyError, match="on_error of 'map' is 'ignore'; it must be one of"):
        tr.Topology().source([1]).map(abs, on_error="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [tr.Stream, tr.KeyedStream, tr.WindowedStream])
def test_every_option_of_every_method_is_known_to_editors(kind: type) -> None:
    methods = {name: method for name, method in vars(kind).items() if not name.startswith("_")}
    assert methods
    for name, method in methods.items():
        parameters = inspect.signature(method).parameters.values()
        assert all(one.kind is not one.VAR_KEYWORD for one in parameters), name
        assert all(one.annotation is not one.empty for one in parameters if one.name != "self")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="paralelism"):
        tr.Topology().source([1]).map(str, paralelism=2)  # type: ignore[call-arg]


def test_dead_letters_must_be_read() -> None:
    topology = tr.Topology()
    topology.source([1]).map(abs, on_error="dead letter").sink(print)
    with pytest.raises(tr.TopologyError, match="'map' sends failed records to its dead letters"):
        _ = topology.graph


def test_dead_letters_of_an_operator_that_makes_none_are_refused() -> None:
    stream = tr.Topology().source([1]).map(abs)
    with pytest.raises(tr.TopologyError, match="'map' has no dead letters: its on_error is 'fail'"):
        stream.dead_letters()


def test_dead_letters_of_an_unknown_operator_name_those_there_are() -> None:
    topology = tr.Topology()
    topology.source([1])
    with pytest.raises(tr.TopologyError, match=r"no operator 'mop'; there are \['source'\]"):
        topology.dead_letters("mop")


def test_a_merged_stream_has_no_sides() -> None:
    topology = tr.Topology()
    merged = topology.source([1]).merge(topology.source([2]))
    with pytest.raises(tr.TopologyError, match=r"\.side\(\) is for one operator's stream"):
        merged.side("late")


def test_streams_of_two_topologies_do_not_merge() -> None:
    with pytest.raises(tr.TopologyError, match="different topologies"):
        tr.Topology().source([1]).merge(tr.Topology().source([2]))


def test_an_empty_topology_is_told_how_to_start() -> None:
    with pytest.raises(tr.TopologyError, match=r"topology 'nothing' is empty"):
        _ = tr.Topology("nothing").graph


def test_partial_keys_fold_in_two_steps() -> None:
    topology = tr.Topology()
    words = topology.source(["to", "be", "or", "not", "to", "be", "to", "be"], parallelism=2)
    partial = words.partial_key_by().fold(lambda n, _: n + 1, initial=0, parallelism=4)
    whole = partial.key_by(lambda pair: pair[0]).fold(lambda n, pair: n + pair[1], initial=0)
    results = collect(whole.gather())
    run(topology, workers=2)
    assert dict(results) == {"to": 3, "be": 3, "or": 1, "not": 1}


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_a_fold_that_combines_splits_hot_keys_and_gives_what_one_instance_would(
    parallelism: int,
) -> None:
    chance = random.Random(parallelism)
    records = [
        ("hot" if chance.random() < 0.9 else f"k{chance.randrange(50)}", n) for n in range(9000)
    ]
    topology = tr.Topology()
    keyed = topology.source(records, parallelism=2).key_by(lambda record: record[0])
    sums = keyed.fold(
        lambda total, record: total + record[1],
        initial=0,
        combine=operator.add,
        parallelism=parallelism,
        name="sum",
    )
    results = collect(sums.gather())
    run(topology, workers=2)
    expected: dict[str, int] = {}
    for key, n in records:
        expected[key] = expected.get(key, 0) + n
    assert dict(results) == expected
    assert len(results) == len(expected)
    assert [one.name for one in topology.graph.operators][1:3] == ["sum, in parts", "sum"]


def test_a_fold_that_combines_cannot_forget() -> None:
    keyed = tr.Topology().source([1]).key_by()
    with pytest.raises(tr.TopologyError, match="are not forgotten together"):
        keyed.fold(min, combine=min, ttl_s=1.0)


def test_a_topology_reads_as_its_streams() -> None:
    topology = tr.Topology("demo")
    sides = topology.source([1], name="in").split(str, ["1"])
    sides["1"].key_by().map(abs).sink(print)
    assert str(topology).splitlines() == [
        "demo",
        "  in -> split (forward)",
        "  split[1] -> map (key)",
        "  map -> sink (forward)",
    ]
