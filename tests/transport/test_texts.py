"""Equal short texts become one object, and nothing else changes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import tailrace as tr
from tailrace.graph.model import Grouping, Rule, Stream
from tailrace.graph.wiring import InstanceId
from tailrace.routing.slots import Routes
from tailrace.runtime.deployment import Gate
from tailrace.runtime.exchange import Exchange, Stamp
from tailrace.runtime.limits import DEFAULT_LIMITS
from tailrace.runtime.router import Router
from tailrace.testing import collect, run
from tailrace.transport.peer import JumboCodec

short = st.text(st.characters(codec="ascii"), max_size=40)


def fresh(text: str) -> str:
    """An equal text that is another object."""
    return "".join(list(text)) if len(text) > 1 else text


def decoded(text: str) -> str:
    codec = JumboCodec(lambda: 0)
    _, [(_, [(_, _, [again])])] = codec.decode(b"".join(codec.encode([(0, [(0, 0, [text])])])))
    assert isinstance(again, str)
    return again


def dealt(*records: Any) -> list[Any]:
    exchange = Exchange(0, "a -> b", DEFAULT_LIMITS, [])
    exchange.lay([Gate(0, 0, InstanceId("b", 0), 0)])
    by_key = Stream("a", "b", Grouping(Rule.KEY))
    Router(exchange, by_key, 0, 0, Stamp(), set(), Routes.even(1)).put(list(records))
    return [record for _, _, run in exchange.lanes[0].take() for record in run]


@given(short)
def test_a_short_text_is_the_same_object_wherever_it_comes_from(text: str) -> None:
    first = decoded(text)
    assert first == text
    assert decoded(text) is first
    assert dealt(fresh(text))[0] is first


@given(st.lists(st.text(max_size=50)))
def test_dealing_changes_no_value(texts: list[str]) -> None:
    assert dealt(*map(fresh, texts)) == texts


def test_texts_that_differ_only_in_one_place_stay_apart() -> None:
    for size in range(1, 60):
        for place in range(size):
            text = "a" * size
            other = text[:place] + "b" + text[place + 1 :]
            assert [decoded(text), decoded(other)] == [text, other]


def test_keys_for_a_single_receiver_are_one_object_too() -> None:
    topology = tr.Topology()
    words = topology.source(["same word"] * 20).map(fresh)
    results = collect(words.key_by().scan(lambda count, word: count + 1, initial=0))
    run(topology)
    assert [count for _, count in results] == list(range(1, 21))
    assert len({id(word) for word, _ in results}) == 1


def test_what_equals_but_is_no_text_stays_itself() -> None:
    class Word(str):
        pass

    records = ["one", Word("one"), 1, True, 1.0, b"one", "\u00f6ne", None]
    for record, same in zip(records, dealt(*records), strict=True):
        assert same == record
        assert type(same) is type(record)


def test_a_thousand_keys_are_all_remembered_and_more_than_fit_cost_nothing_but_copies() -> None:
    words = [f"word{i}" for i in range(1000)]
    before = {word: decoded(word) for word in words}
    kept = sum(decoded(word) is before[word] for word in words)
    assert kept > 900
    many = [f"{i} of many" for i in range(50_000)]
    assert [decoded(text) for text in many] == many
