"""The Yahoo advertising benchmark: how often the ads of each campaign are seen, per 10 seconds.

Events are parsed, filtered for views, cut down to two fields, joined with the campaigns of their
ads, and counted per campaign in windows of event time. TurboStream runs it at 20,000 per second.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple

import msgspec

from tailrace import Stream, Topology
from tailrace.runtime.source import Source
from tailrace.runtime.windows import tumbling
from tailrace.sources import rate

CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10
WINDOW_S = 10
MAX_DELAY_S = 1
"""Events may be that much out of order."""
CAMPAIGN_OF = {
    f"ad{campaign * ADS_PER_CAMPAIGN + ad:04}": f"campaign{campaign:03}"
    for campaign in range(CAMPAIGNS)
    for ad in range(ADS_PER_CAMPAIGN)
}


def events(seed: int = 0, per_s: float = 20_000, distinct: int = 10_000) -> Callable[[int], str]:
    """The i-th event as JSON. Its time is that of a source of `per_s`, less a random delay.

    All but the time repeats after `distinct`.
    """
    chance = random.Random(seed)
    ads = list(CAMPAIGN_OF)
    prepared = []
    for _ in range(distinct):
        event = {
            "user_id": f"user{chance.randrange(100_000)}",
            "page_id": f"page{chance.randrange(1000)}",
            "ad_id": chance.choice(ads),
            "ad_type": chance.choice(["banner", "modal", "sponsored-search", "mail", "mobile"]),
            "event_type": chance.choice(["view", "click", "purchase"]),
            "ip_address": f"10.0.{chance.randrange(256)}.{chance.randrange(256)}",
        }
        text = msgspec.json.encode(event).decode()
        prepared.append((text[:-1], chance.randrange(MAX_DELAY_S * 1000)))

    def make(i: int) -> str:
        text, delay_ms = prepared[i % distinct]
        return f'{text},"event_time":{MAX_DELAY_S * 1000 + int(i * 1000 / per_s) - delay_ms}}}'

    return make


class Event(msgspec.Struct, frozen=True):
    """What somebody did with an ad."""

    user_id: str
    page_id: str
    ad_id: str
    ad_type: str
    event_type: str
    ip_address: str
    event_time: int
    """In milliseconds."""

    @property
    def time_s(self) -> float:
        """The event time."""
        return self.event_time / 1000


class View(NamedTuple):
    """An ad, or once it is joined a campaign, and when it was seen."""

    subject: str
    time_s: float


_decode = msgspec.json.Decoder(Event).decode


def parse(text: str) -> Event:
    """An event from its JSON."""
    return _decode(text)


def is_view(event: Event) -> bool:
    """Whether the ad was only seen."""
    return event.event_type == "view"


def project(event: Event) -> View:
    """What the count needs of an event."""
    return View(event.ad_id, event.time_s)


def join(view: View) -> View:
    """The campaign's view instead of its ad's."""
    return View(CAMPAIGN_OF[view.subject], view.time_s)


def count(seen: int, view: View) -> int:
    """One more."""
    return seen + 1


def yahoo_ads(source: Source, parallelism: int = 2) -> tuple[Topology, Stream]:
    """The topology, and its stream of `WindowResult`s: campaign, window, number of views."""
    topology = Topology("yahoo ads")
    views = (
        topology.source(source, name="events")
        .shuffle()
        .map(parse, name="parse", parallelism=parallelism)
        .event_time(attrgetter("time_s"), max_delay_s=MAX_DELAY_S, name="event time")
        .filter(is_view, name="filter")
        .map(project, name="project")
        .map(join, name="join")
        .event_time(attrgetter("time_s"))
    )
    windows = views.key_by(attrgetter("subject")).window(tumbling(WINDOW_S))
    return topology, windows.aggregate(count, 0, name="count")


def expected(texts: Iterable[str]) -> dict[tuple[str, int], int]:
    """The same in plain Python: the views by campaign and start of the window."""
    views: Counter[tuple[str, int]] = Counter()
    for text in texts:
        event = msgspec.json.decode(text)
        if event["event_type"] == "view":
            start_s = event["event_time"] // (WINDOW_S * 1000) * WINDOW_S
            views[CAMPAIGN_OF[event["ad_id"]], start_s] += 1
    return dict(views)


def topology(per_s: float = 20_000, seconds: float | None = None) -> Topology:
    """Ready to run: `tailrace run tailrace.apps.yahoo_ads:topology`."""
    built, windows = yahoo_ads(rate(per_s, events(per_s=per_s), seconds=seconds))
    windows.sink(lambda window: None, name="sink")
    return built
