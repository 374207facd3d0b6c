from collections import Counter

from tailrace.apps.yahoo_processing import events, expected, yahoo_processing
from tailrace.sources import items
from tailrace.testing import collect, run
from tests.apps.running import first, on_workers


@on_workers
def test_events_come_out_in_both_ways(workers: int, seed: int) -> None:
    records = first(events(seed), 600)
    topology, (purchases, interests) = yahoo_processing(items(records))
    bought, seen = collect(purchases), collect(interests)
    run(topology, workers=workers, seed=seed)
    expected_bought, expected_seen = expected(records)
    assert Counter(bought) == Counter(expected_bought)
    assert Counter(seen) == Counter(expected_seen)
    assert 0 < len(bought) < len(seen) == len(records)
