"""What is wrong with a topology is said precisely, before anything runs."""

import pytest

from tailrace.graph.model import (
    DEAD_LETTERS,
    MAIN,
    Graph,
    Grouping,
    OnError,
    Operator,
    Rule,
    Stream,
)
from tailrace.graph.validate import TopologyError, order, validate

SHUFFLE = Grouping(Rule.SHUFFLE)
FORWARD = Grouping(Rule.FORWARD)


def source(name: str = "source", parallelism: int = 1) -> Operator:
    return Operator(name, None, parallelism, is_source=True)


def graph(*operators: Operator, streams: tuple[Stream, ...] = ()) -> Graph:
    return Graph("test", operators, streams)


def test_an_empty_topology_is_told_how_to_start() -> None:
    with pytest.raises(TopologyError, match=r"topology 'test' is empty; start it with \.source"):
        validate(graph())


def test_a_topology_without_a_source_is_refused() -> None:
    with pytest.raises(TopologyError, match="topology 'test' has no source"):
        validate(graph(Operator("map", None)))


def test_operators_of_one_name_are_counted() -> None:
    with pytest.raises(TopologyError, match="2 operators are named 'map'"):
        validate(graph(source(), Operator("map", None), Operator("map", None)))


@pytest.mark.parametrize("parallelism", [0, -1])
def test_parallelism_is_at_least_one(parallelism: int) -> None:
    message = f"parallelism of 'split' is {parallelism}; it must be a whole number, at least 1"
    with pytest.raises(TopologyError, match=message):
        validate(graph(source(), Operator("split", None, parallelism)))


def test_a_stream_to_an_unknown_operator_names_both_and_those_there_are() -> None:
    stream = Stream("source", "nowhere", SHUFFLE)
    with pytest.raises(TopologyError, match=r"'source -> nowhere' names.*'nowhere'.*\['source'\]"):
        validate(graph(source(), streams=(stream,)))


def test_a_stream_from_an_unknown_output_names_those_there_are() -> None:
    stream = Stream("source", "map", SHUFFLE, output="odd")
    with pytest.raises(TopologyError, match=r"'source' has no output 'odd'; it has \['main'\]"):
        validate(graph(source(), Operator("map", None), streams=(stream,)))


def test_nothing_enters_a_source() -> None:
    stream = Stream("a", "b", SHUFFLE)
    with pytest.raises(TopologyError, match="'b' is a source; the stream 'a -> b' cannot enter it"):
        validate(graph(source("a"), source("b"), streams=(stream,)))


def test_a_port_that_is_not_there_is_refused() -> None:
    stream = Stream("source", "join", SHUFFLE, port=2)
    with pytest.raises(TopologyError, match="enters port 2; 'join' has 2"):
        validate(graph(source(), Operator("join", None, ports=2), streams=(stream,)))


def test_every_port_is_entered() -> None:
    stream = Stream("source", "join", SHUFFLE)
    with pytest.raises(TopologyError, match="nothing enters 'join' at port 1"):
        validate(graph(source(), Operator("join", None, ports=2), streams=(stream,)))


def test_forwarding_needs_equal_parallelism() -> None:
    stream = Stream("source", "map", FORWARD)
    with pytest.raises(TopologyError, match="parallelisms are 2 and 3; make them equal or use"):
        validate(graph(source(parallelism=2), Operator("map", None, 3), streams=(stream,)))


def test_a_cycle_is_shown_without_the_operators_behind_it() -> None:
    streams = (
        Stream("source", "a", SHUFFLE),
        Stream("a", "b", SHUFFLE),
        Stream("b", "a", SHUFFLE),
        Stream("b", "behind", SHUFFLE),
    )
    names = ("behind", "a", "b")
    with pytest.raises(TopologyError, match="the streams b -> a -> b form a cycle"):
        validate(graph(source(), *(Operator(name, None) for name in names), streams=streams))


def test_a_stream_back_to_its_own_operator_is_a_cycle() -> None:
    streams = (Stream("source", "a", SHUFFLE), Stream("a", "a", SHUFFLE))
    with pytest.raises(TopologyError, match="a -> a form a cycle"):
        validate(graph(source(), Operator("a", None), streams=streams))


def test_dead_letters_that_nobody_reads_are_refused() -> None:
    outputs = (MAIN, DEAD_LETTERS)
    parse = Operator("parse", None, outputs=outputs, on_error=OnError.DEAD_LETTER)
    streams = (Stream("source", "parse", SHUFFLE),)
    with pytest.raises(TopologyError, match=r"'parse' sends failed records.*\.dead_letters\(\)"):
        validate(graph(source(), parse, streams=streams))


def test_operators_come_after_all_they_read_from() -> None:
    streams = (
        Stream("left", "join", SHUFFLE),
        Stream("right", "map", SHUFFLE),
        Stream("map", "join", SHUFFLE),
    )
    operators = (Operator("join", None), Operator("map", None), source("left"), source("right"))
    found = order(graph(*operators, streams=streams))
    assert sorted(found) == ["join", "left", "map", "right"]
    assert all(found.index(stream.source) < found.index(stream.target) for stream in streams)
