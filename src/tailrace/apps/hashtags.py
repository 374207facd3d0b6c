"""Regions and hashtags: posts counted by their region, then by their hashtag.

Each hashtag has a region where it is at home; `locality` is the part of posts that use one of
their own region's. An engine that finds out, and keeps a region and its hashtags in one worker,
saves that part of the traffic: the workload of the paper on locality-aware routing, which varies
locality (60 and 80 %, among others), the padding of posts from 0 to 20 kB and parallelism from 1
to 6.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple

from tailrace import Stream, Topology
from tailrace.runtime.process import Operator
from tailrace.runtime.source import Source
from tailrace.sources import rate

REGIONS = 6
LOCALITY = 0.6


class Post(NamedTuple):
    """A short message; what it says does not matter, only how long it is."""

    region: str
    hashtag: str
    padding: bytes


class Counted(NamedTuple):
    """How many posts with that region, and with that hashtag, there have been."""

    region: str
    region_count: int
    hashtag: str
    hashtag_count: int
    padding: bytes


def posts(
    seed: int = 0,
    *,
    locality: float = LOCALITY,
    regions: int = REGIONS,
    hashtags_per_region: int = 1,
    padding_bytes: int = 0,
    drift_every: int | None = None,
    distinct: int = 10_000,
) -> Callable[[int], Post]:
    """The i-th post; they repeat after `distinct`.

    Regions are equally frequent, a region's hashtags by Zipf's law: the second half as often as
    the first. With one hashtag per region the keys are the pairs of the paper's synthetic
    workload. After every `drift_every` posts all hashtags move on to the next region, as trends do.
    """
    if not 0 <= locality <= 1:
        raise ValueError(f"locality is {locality}; it must be between 0 and 1")
    if regions < 2 and locality < 1:
        raise ValueError(f"with {regions} region(s) all posts are local; make locality 1")
    chance = random.Random(seed)
    ranks = range(hashtags_per_region)
    weights = [1 / (rank + 1) for rank in ranks]
    padding = bytes(padding_bytes)
    prepared = []
    for _ in range(distinct):
        region = chance.randrange(regions)
        away = 0 if chance.random() < locality else chance.randrange(1, regions)
        prepared.append((region, away, chance.choices(ranks, weights)[0]))

    def make(i: int) -> Post:
        region, away, rank = prepared[i % distinct]
        drift = i // drift_every if drift_every else 0
        home = (region + away - drift) % regions
        return Post(f"region{region}", f"#tag{home}.{rank}", padding)

    return make


class CountRegion(Operator):
    """Counts the posts of a region and hands them on."""

    def process(self, record: Post) -> None:
        """One more."""
        self.state = (self.state or 0) + 1
        self.emit(Counted(record.region, self.state, record.hashtag, 0, record.padding))


class CountHashtag(Operator):
    """Counts the posts of a hashtag and hands them on."""

    def process(self, record: Counted) -> None:
        """One more."""
        self.state = (self.state or 0) + 1
        self.emit(record._replace(hashtag_count=self.state))


def hashtags(source: Source, parallelism: int = REGIONS) -> tuple[Topology, Stream]:
    """The topology, and its stream of a `Counted` for every post."""
    topology = Topology("hashtags")
    by_region = topology.source(source, name="posts").key_by(attrgetter("region"))
    counted = by_region.process(CountRegion(), name="regions", parallelism=parallelism)
    return topology, counted.key_by(attrgetter("hashtag")).process(CountHashtag(), name="hashtags")


def expected(posts: Iterable[Post]) -> tuple[dict[str, int], dict[str, int]]:
    """The same in plain Python: the posts of each region, and of each hashtag."""
    posts = list(posts)
    return (
        dict(Counter(post.region for post in posts)),
        dict(Counter(post.hashtag for post in posts)),
    )


def topology(per_s: float = 10_000, seconds: float | None = None) -> Topology:
    """Ready to run: `tailrace run tailrace.apps.hashtags:topology`."""
    built, counts = hashtags(rate(per_s, posts(), seconds=seconds))
    counts.sink(lambda counted: None, name="sink")
    return built
