from collections import Counter

from tailrace.apps.yahoo_page_load import expected, lines, yahoo_page_load
from tests.apps.running import first, on_workers, results_of


@on_workers
def test_page_loads_come_out_with_site_and_cost(workers: int, seed: int) -> None:
    records = first(lines(seed), 600)
    results = results_of(yahoo_page_load, records, workers, seed)
    assert Counter(results) == Counter(expected(records))
    assert 0 < len(results) < len(records)


def test_operators_may_have_work_to_do() -> None:
    records = first(lines(), 20)
    results = results_of(yahoo_page_load, records, 1, 0, operations=1000)
    assert Counter(results) == Counter(expected(records))
