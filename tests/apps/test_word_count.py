from collections import Counter

from tailrace.apps.word_count import WORDS_PER_SENTENCE, expected, sentences, word_count
from tests.apps.running import first, on_workers, results_of


@on_workers
def test_every_word_is_counted(workers: int, seed: int) -> None:
    records = first(sentences(seed), 200)
    results = results_of(word_count, records, workers, seed)
    assert len(results) == 200 * WORDS_PER_SENTENCE
    assert Counter(results) == Counter(expected(records))
