"""Runs of text or bytes, laid out flat and back again."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.transport import flat

ascii_text = st.text(st.characters(codec="ascii"), max_size=40)
records = st.lists(ascii_text, min_size=1) | st.lists(st.binary(max_size=40))
stamps = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(stamps, records), max_size=5))
@example([(1, ["a", ""]), (2, []), (3, [b"", b"x"])])
def test_what_is_laid_out_comes_back_equal_and_of_the_same_types(
    runs: list[tuple[int, list[str] | list[bytes]]],
) -> None:
    payload = flat.encode(runs)
    assert payload is not None
    again = flat.decode(payload)
    assert again == runs
    assert [[type(r) for r in batch] for _, batch in again] == [
        [type(r) for r in batch] for _, batch in runs
    ]


class Word(str):
    """A str that is more than a str."""


@pytest.mark.parametrize(
    "runs",
    [
        [(1, ["umlaut \u00e4"])],
        [(1, ["a", b"a"])],
        [(1, [b"a", "a"])],
        [(1, [1])],
        [(1, [None])],
        [(1, [bytearray(b"a")])],
        [(1, [Word("a")])],
        [(1, ("a",))],
        ["not a run"],
        [(1, ["a"], 2)],
    ],
)
def test_everything_else_is_left_to_pickle(runs: list[object]) -> None:
    assert flat.encode(runs) is None


@given(st.binary(max_size=200))
@example(b"F")
@example(b"F\x01\x00\x00\x00")
def test_other_bytes_are_refused_and_nothing_worse(payload: bytes) -> None:
    try:
        runs = flat.decode(payload)
    except ValueError:
        return
    assert flat.encode(runs) is not None


@given(st.data())
def test_a_payload_cut_short_or_made_longer_is_refused(data: st.DataObject) -> None:
    payload = flat.encode([(5, ["some", "words"]), (6, [b"and", b"bytes"])])
    assert payload is not None
    cut = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(ValueError, match=r"bytes|runs"):
        flat.decode(payload[:cut])
    with pytest.raises(ValueError, match="after the last run"):
        flat.decode(payload + b"x")
