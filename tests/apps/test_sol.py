from collections import Counter

from tailrace.apps.sol import MESSAGE_BYTES, expected, messages, sol
from tailrace.sources import items
from tests.apps.running import first, on_workers, results_of


@on_workers
def test_every_message_arrives_once(workers: int, seed: int) -> None:
    records = first(messages(seed), 500)
    results = results_of(sol, records, workers, seed)
    assert Counter(results) == Counter(expected(records))
    assert {len(message) for message in results} == {MESSAGE_BYTES}


def test_there_may_be_any_number_of_hops() -> None:
    topology, _ = sol(items(first(messages(), 1)), hops=2)
    assert [node.name for node in topology.graph.operators] == ["messages", "hop 1", "hop 2"]
