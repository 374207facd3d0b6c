from collections import Counter

from tailrace.apps.fraud_detection import (
    KINDS,
    STEPS,
    expected,
    fraud_detection,
    habits,
    transactions,
)
from tests.apps.running import first, on_workers, results_of


@on_workers
def test_every_transaction_gets_its_signal(workers: int, seed: int) -> None:
    records = first(transactions(seed, customers=100, distinct=2000), 2000)
    results = results_of(fraud_detection, records, workers, seed)
    assert len(results) == len(records)
    assert Counter(results) == Counter(expected(records))


def test_the_suspicious_are_few_and_mostly_those_who_act_at_random() -> None:
    make = transactions(customers=300, distinct=30_000)
    signals = expected(first(make, 30_000))
    suspicious = Counter(signal.customer for signal in signals if signal.suspicious)
    usual = {customer for customer, times in suspicious.items() if times > 20}
    assert 0 < len(usual) < 30
    caught = sum(times for customer, times in suspicious.items() if customer in usual)
    assert caught > suspicious.total() / 2


def test_nobody_is_suspected_before_there_are_enough_transactions() -> None:
    lines = [f"ann,{n},{kind}" for n, kind in enumerate(KINDS[: STEPS - 1])]
    assert all(signal.score == 0 and not signal.suspicious for signal in expected(lines))


def test_the_model_gives_probabilities() -> None:
    for after in habits(3).likely.values():
        assert abs(sum(after.values()) - 1) < 1e-9
