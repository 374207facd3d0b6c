"""Key functions that raise: their errors go by the policy of the operator that reads the stream."""

from typing import Any

import pytest

import tailrace as tr
from tailrace.testing import collect, run

RECORDS = [4, 0, 2, 0, 1]


def inverse(record: int) -> float:
    return 1 / record


class Count(tr.Operator):
    def process(self, record: int) -> None:
        self.state = (self.state or 0) + 1
        self.emit((self.key, self.state))


KEYED: dict[str, Any] = {
    "scan": lambda s, **o: s.scan(lambda n, _: (n or 0) + 1, **o),
    "fold": lambda s, **o: s.fold(lambda n, _: (n or 0) + 1, **o),
    "process": lambda s, **o: s.process(Count(), **o),
    "window": lambda s, **o: s.window(tr.tumbling(1), time="processing").collect(**o),
}
WIDTHS = [1, 3]


@pytest.mark.parametrize("parallelism", WIDTHS)
@pytest.mark.parametrize("kind", KEYED)
def test_a_key_that_cannot_be_told_is_an_error_of_its_record(kind: str, parallelism: int) -> None:
    topology = tr.Topology()
    keyed = topology.source(RECORDS).key_by(inverse)
    options = {"name": "op", "parallelism": parallelism, "on_error": "dead letter"}
    stream = KEYED[kind](keyed, **options)
    results, dead = collect(stream), collect(stream.dead_letters())
    report = run(topology, workers=2)
    assert sorted(result[0] for result in results) == [0.25, 0.5, 1.0]
    assert [record for record, _ in dead] == [0, 0]
    assert all("ZeroDivisionError" in error for _, error in dead)
    assert report.skipped["op"] == 2


@pytest.mark.parametrize("parallelism", WIDTHS)
def test_without_a_policy_it_fails_the_run_and_names_the_record(parallelism: int) -> None:
    topology = tr.Topology()
    counts = topology.source(RECORDS).key_by(inverse).process(Count(), parallelism=parallelism)
    collect(counts)
    with pytest.raises(tr.OperatorFailed, match="failed on 0: ZeroDivisionError"):
        run(topology, workers=2)
