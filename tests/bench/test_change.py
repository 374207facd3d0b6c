"""The change benchmark: what is read from the times of results."""

from array import array
from itertools import count
from pathlib import Path

from change_parts.logged import Log, began_file
from change_parts.windows import Results, Window, logs, paced, percentile
from recovery_parts.arrivals import SOURCES, Arrivals


def test_records_that_were_under_way_count_however_late_they_came() -> None:
    results = Results.of([(5, 1), (12, 8), (15, 14), (90, 19), (95, 21)])
    assert results.latencies_ns(Window(10, 20)) == [4, 1, 71]


def test_a_silence_counts_from_the_last_result_before_to_the_first_after() -> None:
    results = Results.of([(5, 1), (12, 8), (15, 14), (90, 19), (95, 21)])
    assert results.longest_silence_ns(Window(13, 20)) == 75
    assert results.longest_silence_ns(Window(6, 15)) == 7


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert percentile([3, 1, 2], 50) == 2
    assert percentile([3, 1, 2], 99) == 3
    assert percentile([7], 1) == 7


def test_what_the_sink_notes_is_found_with_when_it_was_due(tmp_path: Path) -> None:
    arrivals = Arrivals(str(tmp_path), keys=10, paced=20, changing=5)
    arrivals.write({index: count(0, 1000) for index in range(SOURCES)})
    for index in range(SOURCES):
        began_file(arrivals, index).write_text(str(1_000_000 * (index + 1)))
    log = Log(tmp_path)
    log.open(0, 1)
    log.write(iter([("a", (1, 3)), ("b", (2, 12)), ("c", (5, 15))]))
    log.close()
    found = list(logs(tmp_path))
    assert [one[1:] for one in found] == [(3, 1), (12, 2), (15, 5)]
    # The second of the one source and the third of the other; the first was no record of the pace.
    assert sorted(paced(arrivals, found).due_ns) == [1_001_000, 2_002_000]


def test_the_times_of_a_source_are_those_that_were_written(tmp_path: Path) -> None:
    arrivals = Arrivals(str(tmp_path), keys=2, paced=6, changing=2)
    arrivals.write({0: count(5, 1), 1: count(50, 10)})
    assert arrivals.offsets_ns(1) == array("q", [50, 60, 70])
