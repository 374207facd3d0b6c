from collections import Counter

import pytest

from tailrace.apps.hashtags import Post, expected, hashtags, posts
from tests.apps.running import first, on_workers, results_of


def at_home(post: Post) -> bool:
    return post.hashtag.startswith(f"#tag{post.region.removeprefix('region')}.")


@on_workers
def test_posts_are_counted_by_region_and_by_hashtag(workers: int, seed: int) -> None:
    records = first(posts(seed, hashtags_per_region=5), 1500)
    results = results_of(hashtags, records, workers, seed, parallelism=3)
    regions, tags = expected(records)
    counted_regions = Counter((one.region, one.region_count) for one in results)
    counted_tags = Counter((one.hashtag, one.hashtag_count) for one in results)
    assert counted_regions == Counter((r, n + 1) for r in regions for n in range(regions[r]))
    assert counted_tags == Counter((t, n + 1) for t in tags for n in range(tags[t]))
    assert Counter((one.region, one.hashtag) for one in results) == Counter(
        (post.region, post.hashtag) for post in records
    )


@pytest.mark.parametrize("locality", [0.0, 0.6, 0.8, 1.0])
def test_locality_is_the_part_of_posts_with_a_hashtag_of_their_region(locality: float) -> None:
    records = first(posts(locality=locality, hashtags_per_region=3), 5000)
    local = sum(map(at_home, records)) / len(records)
    assert local == locality if locality in (0, 1) else abs(local - locality) < 0.03


def test_after_a_drift_hashtags_are_at_home_in_the_next_region() -> None:
    make = posts(locality=1, regions=3, drift_every=100)
    assert all(map(at_home, first(make, 100)))
    later = make(100)
    home = int(later.region.removeprefix("region"))
    assert later.hashtag == f"#tag{(home - 1) % 3}.0"


def test_padding_makes_posts_as_long_as_wanted() -> None:
    assert len(posts(padding_bytes=4000)(0).padding) == 4000


def test_a_locality_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"locality is 1\.5; it must be between 0 and 1"):
        posts(locality=1.5)
    with pytest.raises(ValueError, match="make locality 1"):
        posts(regions=1)
