"""Who has got which rows: partitions, attempts, batches. No socket, no Spark."""

from __future__ import annotations

import random

import pytest

from tailrace.control.feed import ALL, Intake, Note, Say, unpack


def test_a_message_survives_the_wire() -> None:
    note = Note(Say.ROWS, batch=1 << 40, partition=70_000, row=1 << 50)
    found, behind = unpack(note.pack() + b"Arrow")
    assert found == note
    assert bytes(behind) == b"Arrow"
    assert len(note.pack()) % 8 == 0


def test_an_attempt_after_a_failed_one_goes_on_where_that_was() -> None:
    intake: Intake[str] = Intake()
    assert intake.begin(0, 5, "first") == (0, 0)
    assert intake.take(0, 5, 0, 10, "a") == 0
    assert intake.secure(0, 5, 10) == ["first"]
    assert intake.take(0, 5, 10, 10, "a") == 0
    assert intake.begin(0, 5, "second") == (20, 10)
    assert intake.take(0, 5, 15, 10, "a") == 5
    assert intake.secure(0, 5, 20) == ["first", "second"]
    assert intake.secure(0, 5, 20) == [], "that is no news"


def test_rows_that_were_handed_on_are_room_and_not_safe() -> None:
    intake: Intake[str] = Intake()
    intake.begin(0, 5, "first")
    intake.take(0, 5, 0, 10, "first")
    assert intake.hand(0, 5, 8) == ["first"]
    assert intake.hand(0, 5, 8) == [], "that is no news"
    assert intake.begin(0, 5, "second") == (10, 0)
    assert intake.secure(0, 5, 6) == ["first", "second"]
    assert intake.secure(0, 5, 10) == ["first", "second"]
    assert intake.hand(0, 5, 10) == [], "what is safe was handed on"
    assert intake.pushers() == ["first", "second"]
    intake.done(0, 5)
    assert intake.pushers() == []


def test_partitions_do_not_know_each_other() -> None:
    intake: Intake[str] = Intake()
    intake.begin(0, 0, "a")
    intake.begin(0, 1, "b")
    intake.take(0, 0, 0, 7, "a")
    assert intake.take(0, 1, 0, 3, "a") == 0
    assert intake.secure(0, 1, 3) == ["b"]


def test_the_next_batch_begins_with_nothing_and_the_last_is_done_with() -> None:
    intake: Intake[str] = Intake()
    intake.begin(3, 0, "a")
    intake.take(3, 0, 0, 7, "a")
    assert intake.begin(4, 0, "b") == (0, 0)
    assert intake.take(4, 0, 0, 7, "a") == 0
    assert intake.begin(3, 0, "late") == (ALL, ALL)
    assert intake.take(3, 0, 7, 5, "a") == 5
    assert intake.secure(3, 0, 5) == []


def test_who_pushed_a_partition_that_is_done_is_forgotten() -> None:
    intake: Intake[str] = Intake()
    intake.begin(0, 1, "other")
    intake.begin(0, 5, "killed")
    intake.begin(0, 5, "second")
    intake.take(0, 5, 0, 10, "second")
    intake.secure(0, 5, 10)
    intake.done(0, 5)
    intake.done(7, 1)
    intake.take(0, 1, 0, 3, "other")
    assert intake.secure(0, 1, 3) == ["other"]
    assert intake.secure(0, 5, 10) == []
    assert intake.begin(0, 5, "third") == (10, 10)


def test_an_attempt_with_more_rows_than_the_one_that_is_done_is_answered() -> None:
    intake: Intake[str] = Intake()
    intake.begin(0, 5, "first")
    intake.begin(0, 5, "second")
    intake.take(0, 5, 0, 10, "first")
    intake.secure(0, 5, 10)
    intake.done(0, 5)
    assert intake.take(0, 5, 0, 12, "second") == 10
    assert intake.secure(0, 5, 12) == ["second"]


def test_a_gap_is_an_error() -> None:
    intake: Intake[str] = Intake()
    intake.begin(0, 2, "a")
    intake.take(0, 2, 0, 4, "a")
    with pytest.raises(ValueError, match="goes on with row 9; row 4 was to come"):
        intake.take(0, 2, 9, 1, "a")
    with pytest.raises(ValueError, match="partition 3 of batch 0, which never began"):
        intake.take(0, 3, 0, 1, "a")


@pytest.mark.parametrize("seed", range(200))
def test_however_attempts_die_and_overlap_each_row_comes_once_and_in_order(seed: int) -> None:
    """Attempts of one partition, some side by side, each from where it is told to go on."""
    chance = random.Random(seed)
    total = chance.randint(1, 60)
    intake: Intake[int] = Intake()
    taken: list[int] = []
    handed = 0
    places: dict[int, int] = {}  # by attempt: the next row it sends
    heard: dict[int, int] = {}
    attempts = 0
    while not any(heard[one] == total for one in places):
        action = chance.choice(["begin", "send", "send", "send", "die", "hand", "hand"])
        if action == "begin" and len(places) < 3:
            places[attempts], heard[attempts] = intake.begin(0, 0, attempts)
            attempts += 1
        elif action == "send" and places:
            one = chance.choice(list(places))
            rows = list(range(places[one], min(total, places[one] + chance.randint(1, 9))))
            if rows:
                taken += rows[intake.take(0, 0, rows[0], len(rows), one) :]
                places[one] = rows[-1] + 1
        elif action == "die" and places:
            del places[chance.choice(list(places))]
        elif action == "hand" and handed < len(taken):
            rows_handed = chance.randint(1, len(taken) - handed)
            handed += rows_handed
            heard.update(dict.fromkeys(intake.secure(0, 0, handed), handed))
    assert taken == list(range(total))
    assert handed == total
