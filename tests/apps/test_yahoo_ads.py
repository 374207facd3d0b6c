from tailrace.apps.yahoo_ads import CAMPAIGN_OF, WINDOW_S, events, expected, yahoo_ads
from tailrace.runtime.core import Limits
from tailrace.sources import items
from tailrace.testing import collect, run
from tests.apps.running import first, on_workers


@on_workers
def test_views_are_counted_by_campaign_and_window(workers: int, seed: int) -> None:
    records = first(events(seed, per_s=60), 2000)
    topology, windows = yahoo_ads(items(records))
    results = collect(windows)
    # Few at a time, so that time moves while they come.
    report = run(topology, workers=workers, seed=seed, limits=Limits(poll_records=10))
    assert report.late == dict.fromkeys(report.late, 0)
    found = {(window.key, window.start): window.value for window in results}
    assert len(found) == len(results)
    assert found == expected(records)
    assert {window.end - window.start for window in results} == {WINDOW_S}
    assert len({window.start for window in results}) > 3


def test_there_are_a_hundred_campaigns_of_ten_ads() -> None:
    assert len(CAMPAIGN_OF) == 1000
    assert len(set(CAMPAIGN_OF.values())) == 100
