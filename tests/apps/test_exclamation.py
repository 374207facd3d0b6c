from collections import Counter

import pytest

from tailrace.apps.exclamation import exclamation, expected, names
from tests.apps.running import first, on_workers, results_of


@on_workers
@pytest.mark.parametrize("operations", [0, 100])
def test_names_get_loud(workers: int, seed: int, operations: int) -> None:
    records = first(names(seed), 300)
    results = results_of(exclamation, records, workers, seed, operations=operations)
    assert Counter(results) == Counter(expected(records))
    assert all(name.endswith("!!!!!!!!!") for name in results)
