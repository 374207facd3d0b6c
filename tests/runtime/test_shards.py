"""Many keys in many small dictionaries: as one dictionary, but never long to make room."""

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.runtime.shards import Shards
from tailrace.runtime.sweep import Sweep

keys = st.one_of(st.integers(0, 6000), st.text(max_size=2), st.tuples(st.integers(0, 60)))
doings = st.lists(
    st.tuples(st.sampled_from(["put", "pop", "del", "default", "item", "many"]), keys),
    max_size=60,
)


@settings(max_examples=200)
@given(doings)
def test_it_does_what_a_dictionary_does(some: list[tuple[str, Hashable]]) -> None:
    one, other = Shards(), dict[Hashable, int]()
    for number, (what, key) in enumerate(some):
        if what == "put":
            one[key] = other[key] = number
        elif what == "pop":
            assert one.pop(key, None) == other.pop(key, None)
        elif what == "del" and key in other:
            del one[key], other[key]
        elif what == "default":
            assert one.setdefault(key, number) == other.setdefault(key, number)
        elif what == "item" and other:
            taken, value = one.popitem()
            assert other.pop(taken) == value
        elif what == "many":
            one.update((key, number) for key in range(number, 5000, 2))
            other.update((key, number) for key in range(number, 5000, 2))
        assert (key in one, one.get(key)) == (key in other, other.get(key))
    assert len(one) == len(other)
    assert bool(one) == bool(other)
    assert dict(one.items()) == {**one} == other
    assert sorted(map(repr, one)) == sorted(map(repr, other))
    assert sorted(one.values()) == sorted(other.values())


def test_no_dictionary_of_it_becomes_large_whatever_the_keys_are() -> None:
    for made in (
        Shards((number, 0) for number in range(100_000)),
        Shards((number << 32, 0) for number in range(100_000)),
        Shards((f"key {number}", 0) for number in range(100_000)),
    ):
        assert max(map(len, made.dictionaries)) <= 512


class Alike:
    """Of these all have one hash, which may be asked for so many times only."""

    asked = 1 << 60

    def __hash__(self) -> int:
        if Alike.asked == 0:
            raise ValueError("no hash today")
        Alike.asked -= 1
        return 7


def test_keys_of_one_hash_stay_in_one_dictionary() -> None:
    made = [Alike() for _ in range(600)]
    shards = Shards((key, number) for number, key in enumerate(made))
    assert [shards[key] for key in made] == list(range(600))
    assert sorted(map(len, shards.dictionaries))[-2:] == [0, 600]


def test_a_hash_that_fails_while_it_is_divided_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shards = Shards((number, number) for number in range(400))
    made = [Alike() for _ in range(113)]
    shards.update((key, 0) for key in made[:112])
    monkeypatch.setattr(Alike, "asked", 20)
    with pytest.raises(ValueError, match="no hash today"):
        shards[made[112]] = 0
    monkeypatch.setattr(Alike, "asked", 1 << 60)
    assert set(shards) == {*range(400), *made}
    shards["one more"] = 1  # and is divided then
    assert len(shards) == 514
    assert max(map(len, shards.dictionaries)) < 514


def test_who_goes_through_it_in_pieces_finds_what_was_there_though_it_has_grown() -> None:
    shards = Shards((number, 0) for number in range(2000))
    sweeps = [Sweep(one) for one in shards.dictionaries]
    found = set(sweeps[0].some(100))
    shards.update((number, 0) for number in range(2000, 10_000))
    for sweep in sweeps:
        while some := sweep.some(64):
            found.update(some)
    assert found >= set(range(2000))


def test_what_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        Shards()["a"]
    with pytest.raises(KeyError):
        del Shards()["a"]
    with pytest.raises(KeyError):
        Shards().pop("a")
    with pytest.raises(KeyError):
        Shards().popitem()
    with pytest.raises(TypeError, match="unhashable"):
        Shards()[[]] = 1  # type: ignore[index]
