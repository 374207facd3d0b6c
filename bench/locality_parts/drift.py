"""Posts of regions and hashtags that drift from week to week, in the manner of Twitter's.

Regions and hashtags are as frequent as Zipf's law has it. A hashtag has a region where most of its
posts come from. Half of the hashtags stay what they are; of the others a part fades every week and
new ones take their ranks, and a part moves to another region. How much comes from a continent
goes up and down. The Twitter data of the paper cannot be had; shares are chosen so that hashes,
tables of the same week and tables of the week before do about as well as there. Everything follows
from the seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailrace.routing.pairs import PairCounts

REGION, TAG = "region", "tag"
_PERSISTS = 0.9
"""What is left of a swell after a week."""


@dataclass(frozen=True)
class Drift:
    """What changes, and by how much."""

    regions: int = 800
    tags: int = 20_000
    posts: int = 150_000
    """A week."""
    continents: int = 8
    faithful: float = 0.6
    """The part of a hashtag's posts that come from its region."""
    near: float = 0.3
    """The part of the others that come from its continent; the rest comes from anywhere."""
    stable: float = 0.5
    """The part of hashtags that stay for ever."""
    fade: float = 0.5
    """The part of the others that are replaced by new ones in a week."""
    move: float = 0.15
    """The part of the others that go to another region in a week."""
    swell: float = 0.25
    """How much the continents' shares change in a week, as a standard deviation of logarithms."""
    seed: int = 0

    def weeks(self) -> Iterator[PairCounts]:
        """What each week has, for ever."""
        chance = np.random.default_rng(self.seed)
        region_share = _zipf(self.regions, 0.9, 15.0)
        tag_share = _zipf(self.tags, 1.0, 12.0)
        continent = chance.integers(self.continents, size=self.regions)
        within = region_share * (continent == np.arange(self.continents)[:, None])
        within = (within / within.sum(axis=1, keepdims=True)).cumsum(axis=1)
        level = np.zeros(self.continents)
        home = chance.choice(self.regions, self.tags, p=region_share)
        name = np.arange(self.tags)
        fleeting = np.flatnonzero(chance.random(self.tags) >= self.stable)
        born = self.tags
        while True:
            share = region_share * np.exp(level)[continent]
            share /= share.sum()
            # A hashtag is as frequent as its region is at the time.
            weight = tag_share * np.exp(level)[continent[home]]
            tag = chance.choice(self.tags, self.posts, p=weight / weight.sum())
            kind, where = chance.random((2, self.posts))
            region = home[tag]
            away = np.flatnonzero(kind >= self.faithful)
            region[away] = chance.choice(self.regions, len(away), p=share)
            for at in range(self.continents):
                near = kind < self.faithful + (1 - self.faithful) * self.near
                some = np.flatnonzero((kind >= self.faithful) & near & (continent[home[tag]] == at))
                region[some] = np.minimum(within[at].searchsorted(where[some]), self.regions - 1)
            yield _counted(region, name[tag])
            gone = fleeting[chance.random(len(fleeting)) < self.fade]
            name[gone] = born + np.arange(len(gone))
            born += len(gone)
            moving = fleeting[chance.random(len(fleeting)) < self.move]
            others = np.union1d(gone, moving)
            home[others] = chance.choice(self.regions, len(others), p=region_share)
            level = _PERSISTS * level + chance.normal(0.0, self.swell, self.continents)


def _zipf(size: int, exponent: float, flat: float) -> Any:
    """Shares by rank; the first few are about equal."""
    shares = (np.arange(size) + flat) ** -exponent
    return shares / shares.sum()


def _counted(region: Any, tag: Any) -> PairCounts:
    both, times = np.unique(np.stack([region, tag]), axis=1, return_counts=True)
    counts = {
        (f"r{one}", f"t{other}"): float(count)
        for one, other, count in zip(*both.tolist(), times.tolist(), strict=True)
    }
    return PairCounts(REGION, TAG, counts, float(len(tag)))
