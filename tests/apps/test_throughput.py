from collections import Counter

from tailrace.apps.throughput import expected, items, throughput
from tests.apps.running import first, on_workers, results_of


@on_workers
def test_items_are_counted_by_producer(workers: int, seed: int) -> None:
    records = first(items(seed, producers=20), 600)
    results = results_of(throughput, records, workers, seed)
    assert Counter(results) == Counter(expected(records))
