"""The mutual challenge: who knows the secret gets in, nobody else does."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.transport.auth import HELLO_BYTES, PROOF_BYTES, Handshake, HandshakeError, Role

SECRET = b"the secret of one job"
DIALER_ID, ACCEPTOR_ID = 3, 4

_nonces = (number.to_bytes(32, "big") for number in itertools.count())


def dialer(secret: bytes = SECRET, peer_id: int = ACCEPTOR_ID) -> Handshake:
    return Handshake(Role.DIALER, secret, DIALER_ID, peer_id=peer_id, nonce=next(_nonces))


def acceptor(secret: bytes = SECRET, peer_id: int | None = None) -> Handshake:
    return Handshake(Role.ACCEPTOR, secret, ACCEPTOR_ID, peer_id=peer_id, nonce=next(_nonces))


def refusal(handshake: Handshake, *chunks: bytes) -> str:
    """Return why the handshake refuses what is fed to it."""
    with pytest.raises(HandshakeError) as error:
        for chunk in chunks:
            handshake.feed(chunk)
    assert not handshake.done
    assert handshake.peer_id is None
    return error.value.reason


def test_both_sides_learn_who_the_other_is() -> None:
    one, other = dialer(), acceptor()
    answer, _ = other.feed(one.opening)
    proof, _ = one.feed(answer)
    assert other.feed(proof) == (b"", b"")
    assert (one.done, one.peer_id) == (True, ACCEPTOR_ID)
    assert (other.done, other.peer_id) == (True, DIALER_ID)


def test_messages_have_a_fixed_length() -> None:
    one, other = dialer(), acceptor()
    answer, _ = other.feed(one.opening)
    proof, _ = one.feed(answer)
    lengths = len(one.opening), len(answer), len(proof)
    assert lengths == (HELLO_BYTES, HELLO_BYTES + PROOF_BYTES, PROOF_BYTES)


@given(st.integers(1, 30), st.binary(max_size=20))
def test_any_chopping_works_and_later_bytes_are_left_unread(size: int, beyond: bytes) -> None:
    one, other = dialer(), acceptor()
    answer = b"".join(
        other.feed(one.opening[start : start + size])[0] for start in range(0, HELLO_BYTES, size)
    )
    pieces = [answer[start : start + size] for start in range(0, len(answer), size)]
    pieces[-1] += beyond
    assert [one.feed(piece) for piece in pieces][-1][1] == beyond
    assert one.done


def test_an_acceptor_with_a_wrong_secret_is_refused() -> None:
    one, other = dialer(), acceptor(secret=b"a guess of the secret")
    answer, _ = other.feed(one.opening)
    assert refusal(one, answer) == "bad_proof"


def test_a_dialer_with_a_wrong_secret_is_refused() -> None:
    one, other = dialer(secret=b"a guess of the secret"), acceptor()
    other.feed(one.opening)
    assert refusal(other, bytes(PROOF_BYTES)) == "bad_proof"


def test_a_replayed_dialer_is_refused() -> None:
    one, first = dialer(), acceptor()
    proof, _ = one.feed(first.feed(one.opening)[0])
    assert refusal(acceptor(), one.opening, proof) == "bad_proof"


def test_a_replayed_acceptor_is_refused() -> None:
    first, other = dialer(), acceptor()
    answer, _ = other.feed(first.opening)
    assert refusal(dialer(), answer) == "bad_proof"


def test_a_dialer_refuses_its_own_reflection() -> None:
    one = dialer()
    assert refusal(one, one.opening) == "bad_role"


def test_an_acceptor_refuses_its_own_proof_reflected() -> None:
    one, other = dialer(), acceptor()
    answer, _ = other.feed(one.opening)
    assert refusal(other, answer[HELLO_BYTES:]) == "bad_proof"


def test_a_proof_made_by_the_acceptor_role_elsewhere_is_refused() -> None:
    """A worker of the job may not be used as an oracle that signs in another's place."""
    victim = acceptor()
    hello = dialer().opening
    answer, _ = victim.feed(hello)
    oracle_answer, _ = acceptor().feed(hello)
    assert answer != oracle_answer
    assert refusal(victim, oracle_answer[HELLO_BYTES:]) == "bad_proof"


def test_a_dialer_that_wants_another_worker_is_refused() -> None:
    assert refusal(acceptor(), dialer(peer_id=99).opening) == "wrong_worker"


def test_an_acceptor_that_expects_another_worker_refuses() -> None:
    assert refusal(acceptor(peer_id=98), dialer().opening) == "wrong_worker"


def test_identities_are_bound_into_the_proof() -> None:
    """Somebody on the path who changes who speaks cannot keep the proofs valid."""
    one, other = dialer(), acceptor()
    hello = bytearray(one.opening)
    hello[12] ^= 1  # the speaker's worker id
    answer = bytearray(other.feed(bytes(hello))[0])
    answer[16] ^= 1  # back to the addressee that the dialer expects
    assert refusal(one, bytes(answer)) == "bad_proof"


@pytest.mark.parametrize(
    ("start", "reason"),
    [(b"G", "bad_magic"), (b"TAILGATE", "bad_magic"), (b"TAILRACE\x02", "bad_version")],
)
def test_a_stranger_is_refused_by_its_first_bytes(start: bytes, reason: str) -> None:
    assert refusal(acceptor(), start) == reason


def test_after_a_refusal_the_handshake_stays_refused() -> None:
    other = acceptor()
    assert refusal(other, b"GET / HTTP/1.1") == "bad_magic"
    assert refusal(other, dialer().opening) == "bad_magic"


@given(st.lists(st.binary(max_size=100), max_size=5), st.sampled_from([dialer, acceptor]))
def test_random_bytes_are_refused_and_raise_nothing_else(chunks: list[bytes], make: type) -> None:
    handshake = make()
    try:
        for chunk in chunks:
            handshake.feed(chunk)
    except HandshakeError:
        pass
    assert not handshake.done


@given(st.data())
def test_a_single_changed_bit_is_refused_by_somebody(data: st.DataObject) -> None:
    one, other = dialer(), acceptor()
    position = data.draw(st.integers(0, 2 * HELLO_BYTES + 2 * PROOF_BYTES - 1))
    mask = 1 << data.draw(st.integers(0, 7))
    seen = 0

    def tampered(message: bytes) -> bytes:
        nonlocal seen
        changed = bytearray(message)
        if seen <= position < seen + len(message):
            changed[position - seen] ^= mask
        seen += len(message)
        return bytes(changed)

    with pytest.raises(HandshakeError):
        answer, _ = other.feed(tampered(one.opening))
        proof, _ = one.feed(tampered(answer))
        other.feed(tampered(proof))
    assert not (one.done and other.done)


def test_a_short_secret_is_refused_with_its_length() -> None:
    with pytest.raises(ValueError, match="the secret has 5 bytes; it needs at least 16"):
        dialer(secret=b"short")


def test_a_nonce_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="the nonce has 3 bytes"):
        Handshake(Role.ACCEPTOR, SECRET, 1, nonce=b"abc")


def test_a_dialer_must_say_whom_it_wants() -> None:
    with pytest.raises(ValueError, match="peer_id is None"):
        Handshake(Role.DIALER, SECRET, 1, nonce=bytes(32))


def test_a_worker_id_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="worker id is 4294967296"):
        Handshake(Role.ACCEPTOR, SECRET, 2**32, nonce=bytes(32))
