"""Fraud detection: customers whose last transactions are unlikely to follow each other.

A Markov model says how likely one kind of transaction comes after another. The predictor keeps
each customer's last five, and gives for every transaction a signal: how much of the probability
the customer's steps have missed, and whether that is suspicious. All operators have a selectivity
of one, as in BriskStream.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from operator import attrgetter
from typing import NamedTuple

from tailrace import Stream, Topology
from tailrace.runtime.process import Operator
from tailrace.runtime.source import Source
from tailrace.sources import rate

KINDS = tuple(map("".join, product("LNH", "NE", "SNL")))
"""Amount (low, normal, high), goods (normal, expensive), time since the last (short ... long)."""
CUSTOMERS = 1000
FRAUDS = 0.02
"""The part of customers who choose their transactions at random."""
STEPS = 5
SUSPICIOUS = 0.96


@dataclass(frozen=True)
class Model:
    """How likely each kind of transaction follows each other one."""

    likely: dict[str, dict[str, float]]

    def missed(self, before: str, after: str) -> float:
        """The probability of all that could have come instead."""
        return 1.0 - self.likely[before][after]


def habits(seed: int = 0) -> Model:
    """A model by which nine in ten steps lead to one of three kinds, which depend on the first."""
    chance = random.Random(seed)
    likely = {}
    for before in KINDS:
        usual = chance.sample(KINDS, 3)
        rare = 0.1 / (len(KINDS) - len(usual))
        likely[before] = {after: 0.3 if after in usual else rare for after in KINDS}
    return Model(likely)


def transactions(
    seed: int = 0, customers: int = CUSTOMERS, distinct: int = 50_000
) -> Callable[[int], str]:
    """The i-th transaction as text: customer, number, kind. Kinds repeat after `distinct`."""
    chance = random.Random(seed)
    model = habits()
    frauds = {f"c{n}" for n in range(customers) if chance.random() < FRAUDS}
    last: dict[str, str] = {}
    prepared = []
    for _ in range(distinct):
        customer = f"c{chance.randrange(customers)}"
        if customer in frauds or customer not in last:
            kind = chance.choice(KINDS)
        else:
            after = model.likely[last[customer]]
            kind = chance.choices(list(after), list(after.values()))[0]
        last[customer] = kind
        prepared.append((customer, kind))

    def make(i: int) -> str:
        customer, kind = prepared[i % distinct]
        return f"{customer},{i},{kind}"

    return make


class Transaction(NamedTuple):
    """What a customer did."""

    customer: str
    number: int
    kind: str


class Signal(NamedTuple):
    """What the predictor thinks of a transaction; 0 while there are too few before it."""

    customer: str
    number: int
    score: float
    suspicious: bool


def parse(line: str) -> Transaction:
    """A transaction from its text."""
    customer, number, kind = line.split(",")
    return Transaction(customer, int(number), kind)


class Predict(Operator):
    """Keeps a customer's last kinds of transactions, and rates the steps between them."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def process(self, record: Transaction) -> None:
        """Give the signal for a transaction."""
        kinds = self.state or deque(maxlen=STEPS)
        kinds.append(record.kind)
        self.state = kinds
        score = 0.0
        if len(kinds) == STEPS:
            missed = (self.model.missed(before, after) for before, after in pairwise(kinds))
            score = sum(missed) / (STEPS - 1)
        self.emit(Signal(record.customer, record.number, score, score > SUSPICIOUS))


def fraud_detection(source: Source, parallelism: int = 2) -> tuple[Topology, Stream]:
    """The topology, and its stream of a `Signal` for every transaction.

    The parser stays with its source, so that a customer's transactions stay in order.
    """
    topology = Topology("fraud detection")
    parsed = topology.source(source, name="transactions").map(parse, name="parse")
    by_customer = parsed.key_by(attrgetter("customer"))
    return topology, by_customer.process(Predict(habits()), name="predict", parallelism=parallelism)


def expected(lines: Iterable[str]) -> list[Signal]:
    """The same in plain Python, in any order."""
    model = habits()
    signals = []
    history: dict[str, list[str]] = {}
    for line in lines:
        customer, number, kind = line.split(",")
        kinds = history.setdefault(customer, [])
        kinds.append(kind)
        score = 0.0
        if len(kinds) >= STEPS:
            steps = zip(kinds[-STEPS:-1], kinds[1 - STEPS :], strict=True)
            score = sum(1.0 - model.likely[a][b] for a, b in steps) / (STEPS - 1)
        signals.append(Signal(customer, int(number), score, score > SUSPICIOUS))
    return signals


def topology(per_s: float = 10_000, seconds: float | None = None) -> Topology:
    """Ready to run: `tailrace run tailrace.apps.fraud_detection:topology`."""
    built, signals = fraud_detection(rate(per_s, transactions(), seconds=seconds))
    signals.sink(lambda signal: None, name="sink")
    return built
