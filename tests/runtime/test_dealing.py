"""How a shuffle cuts what it deals: finely while little comes, in whole batches while much does."""

from __future__ import annotations

from tailrace.graph.model import Grouping, Rule, Stream
from tailrace.graph.wiring import InstanceId
from tailrace.runtime.deployment import Gate
from tailrace.runtime.exchange import Exchange, Stamp
from tailrace.runtime.limits import DEFAULT_LIMITS
from tailrace.runtime.router import Router

MS = 1_000_000


class Dealer:
    """A router to some receivers of another worker, under a clock of its own."""

    def __init__(self, receivers: int = 2) -> None:
        stream = Stream("a", "b", Grouping(Rule.SHUFFLE))
        self.exchange = Exchange(0, stream.label, DEFAULT_LIMITS, [])
        gates = [Gate(number, 0, InstanceId("b", number), 1) for number in range(receivers)]
        self.exchange.lay(gates)
        self.stamp = Stamp()
        self.router = Router(self.exchange, stream, 0, 0, self.stamp, set())

    def deal(self, at_ns: int, records: int) -> list[int]:
        """How many each receiver gets of a batch."""
        before = self.router.sent_to()
        self.stamp.now_ns = self.stamp.emitted_ns = at_ns
        self.router.put([0] * records)
        return [new - old for old, new in zip(before, self.router.sent_to(), strict=True)]


def test_a_batch_is_cut_for_all_receivers_while_few_records_come() -> None:
    dealer = Dealer()
    for beat in range(100):
        assert dealer.deal(beat * 100 * MS, 64) == [32, 32]


def test_batches_stay_whole_while_as_many_again_come_within_a_round() -> None:
    dealer = Dealer()
    dealt = [dealer.deal(beat * MS // 4, 64) for beat in range(400)]
    late = dealt[300:]
    assert sorted(map(tuple, late)) == [(0, 64)] * 50 + [(64, 0)] * 50  # in turn
    assert dealer.deal(100 * MS, 1024) == [512, 512]  # more than comes in a round is still cut


def test_a_burst_is_cut_and_so_is_what_comes_after_much() -> None:
    dealer = Dealer()
    burst = [dealer.deal(1_000 * MS + turn * MS, 256) for turn in range(4)]
    assert burst == [[128, 128]] * 4
    for turn in range(200):
        dealer.deal(2_000 * MS + turn * MS, 256)
    slow = [dealer.deal(3_000 * MS + turn * 100 * MS, 64) for turn in range(100)]
    assert slow[50:] == [[32, 32]] * 50
