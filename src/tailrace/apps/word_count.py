"""Word count: sentences of ten words out of a vocabulary of a thousand, split and counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable

from tailrace import Stream, Topology
from tailrace.runtime.source import Source
from tailrace.sources import rate

WORDS_PER_SENTENCE = 10
VOCABULARY = tuple(f"word{i:03}" for i in range(1000))


def sentences(seed: int = 0, distinct: int = 10_000) -> Callable[[int], str]:
    """The i-th sentence, the same in every process; they repeat after `distinct`."""
    chance = random.Random(seed)
    prepared = [" ".join(chance.choices(VOCABULARY, k=WORDS_PER_SENTENCE)) for _ in range(distinct)]
    return lambda i: prepared[i % distinct]


def count(seen: int | None, word: str) -> int:
    """One more."""
    return (seen or 0) + 1


def word_count(source: Source, parallelism: int = 2) -> tuple[Topology, Stream]:
    """The topology, and its stream of (word, count) for every word that comes."""
    topology = Topology("word count")
    words = topology.source(source, name="sentences").flat_map(
        str.split, name="split", parallelism=parallelism
    )
    return topology, words.key_by().scan(count, name="count", parallelism=parallelism)


def expected(sentences: Iterable[str]) -> list[tuple[str, int]]:
    """The same in plain Python, in any order."""
    totals = Counter(word for sentence in sentences for word in sentence.split())
    return [(word, n) for word, total in totals.items() for n in range(1, total + 1)]


def topology(per_s: float = 10_000, seconds: float | None = None) -> Topology:
    """Ready to run: `tailrace run tailrace.apps.word_count:topology`."""
    built, counts = word_count(rate(per_s, sentences(), seconds=seconds))
    counts.sink(lambda counted: None, name="sink")
    return built
