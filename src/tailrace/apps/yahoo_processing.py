"""Yahoo's Processing topology: events that are worked on in two ways, to two outputs.

After a transform, one way filters, joins and puts out; the other joins, normalizes and puts out.
All is stateless, and shuffled at each step. The thesis on tail latency runs five instances of
each; a source emits 240, 530 or 600 events per second in each instance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tailrace import Stream, Topology
from tailrace.apps.work import with_work
from tailrace.runtime.source import Source
from tailrace.sources import rate

INSTANCES = 5
PER_INSTANCE_PER_S = 240
USERS = 1000
ITEMS = 500
COUNTRY_OF = {f"user{n}": ("de", "fr", "jp", "us")[n % 4] for n in range(USERS)}
CATEGORY_OF = {f"item{n}": f"category{n % 12}" for n in range(ITEMS)}
CENTS_OF = {"EUR": 100, "USD": 92, "JPY": 1}


def events(seed: int = 0, distinct: int = 10_000) -> Callable[[int], str]:
    """The i-th event as text: user, item, action, amount, currency.

    They repeat after `distinct`.
    """
    chance = random.Random(seed)
    prepared = []
    for _ in range(distinct):
        user, item = chance.randrange(USERS), chance.randrange(ITEMS)
        action = chance.choice(["look", "look", "look", "buy"])
        currency = chance.choice(list(CENTS_OF))
        prepared.append(f"user{user} item{item} {action} {chance.randrange(1, 500)} {currency}")
    return lambda i: prepared[i % distinct]


class Event(NamedTuple):
    """What a user did; country or category are known once they are joined."""

    user: str
    item: str
    action: str
    amount: int
    currency: str
    country: str = ""
    category: str = ""
    cents: int = 0


def transform(text: str) -> Event:
    """An event from its text."""
    user, item, action, amount, currency = text.split()
    return Event(user, item, action, int(amount), currency)


def is_purchase(event: Event) -> bool:
    """Whether something was bought."""
    return event.action == "buy"


def join_user(event: Event) -> Event:
    """With the country of the user."""
    return event._replace(country=COUNTRY_OF[event.user])


def output_purchase(event: Event) -> str:
    """The line for a purchase."""
    return f"{event.country} {event.item} {event.amount} {event.currency}"


def join_item(event: Event) -> Event:
    """With the category of the item."""
    return event._replace(category=CATEGORY_OF[event.item])


def normalize(event: Event) -> Event:
    """With the amount in cents of one currency."""
    return event._replace(cents=event.amount * CENTS_OF[event.currency])


def output_interest(event: Event) -> str:
    """The line for any event."""
    return f"{event.category} {event.action} {event.cents}"


def yahoo_processing(
    source: Source, parallelism: int = INSTANCES, operations: int = 0, delay_s: float = 0.0
) -> tuple[Topology, tuple[Stream, Stream]]:
    """The topology, and its two streams of output lines: purchases, and interest of any kind.

    Each operator does `operations` additions and then waits for `delay_s`.
    """
    topology = Topology("yahoo processing")
    transformed = (
        topology.source(source, name="events", parallelism=parallelism)
        .shuffle()
        .map(with_work(transform, operations, delay_s), name="transform")
    )
    purchases = (
        transformed.shuffle()
        .filter(with_work(is_purchase, operations, delay_s), name="filter")
        .shuffle()
        .map(with_work(join_user, operations, delay_s), name="join 1")
        .shuffle()
        .map(with_work(output_purchase, operations, delay_s), name="output 1")
    )
    interests = (
        transformed.shuffle()
        .map(with_work(join_item, operations, delay_s), name="join 2")
        .shuffle()
        .map(with_work(normalize, operations, delay_s), name="normalize")
        .shuffle()
        .map(with_work(output_interest, operations, delay_s), name="output 2")
    )
    return topology, (purchases, interests)


def expected(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """The same in plain Python, both in any order."""
    purchases, interests = [], []
    for text in texts:
        user, item, action, amount, currency = text.split()
        if action == "buy":
            purchases.append(f"{COUNTRY_OF[user]} {item} {amount} {currency}")
        interests.append(f"{CATEGORY_OF[item]} {action} {int(amount) * CENTS_OF[currency]}")
    return purchases, interests


def topology(
    per_s: float = INSTANCES * PER_INSTANCE_PER_S,
    seconds: float | None = None,
    operations: int = 0,
) -> Topology:
    """Ready to run: `tailrace run tailrace.apps.yahoo_processing:topology`."""
    built, (purchases, interests) = yahoo_processing(
        rate(per_s, events(), seconds=seconds), operations=operations
    )
    purchases.sink(lambda line: None, name="sink 1")
    interests.sink(lambda line: None, name="sink 2")
    return built
