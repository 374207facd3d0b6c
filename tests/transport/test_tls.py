"""TLS beneath a connection: the same frames, and strangers refused."""

from __future__ import annotations

import hashlib
import select
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.transport import identity as identities
from tailrace.transport.identity import Identity, dialer_context, new_secret, pin_in
from tailrace.transport.tcp import Refusals
from tests.transport.world import World

IDENTITY = Identity.make()


@pytest.fixture
def tls_world() -> Iterator[World]:
    with World(identity=IDENTITY) as made:
        yield made


def test_tls_carries_frames_of_all_sizes_both_ways(tls_world: World) -> None:
    dialer = tls_world.dial(pin=IDENTITY.pin)
    sizes = [0, 1, 100, 20_000, 3_000_000, *range(0, 50_000, 1000)]
    for size in sizes:
        assert dialer.send(size, 2, [bytes([size % 251]) * size])
    tls_world.run(lambda: dialer.authenticated and tls_world.accepted[0].authenticated)
    acceptor = tls_world.accepted[0]
    for size in sizes:
        assert acceptor.send(size, 2, [bytes([size % 241]) * size])
    dialer.flush()
    acceptor.flush()
    to_acceptor = tls_world.run_until_received(acceptor, len(sizes))
    to_dialer = tls_world.run_until_received(dialer, len(sizes))
    assert to_acceptor == [(size, 2, bytes([size % 251]) * size) for size in sizes]
    assert to_dialer == [(size, 2, bytes([size % 241]) * size) for size in sizes]
    tls_world.run(lambda: dialer.pending_bytes == acceptor.pending_bytes == 0)
    assert not dialer.events & select.EPOLLOUT


def test_a_peer_without_tls_is_refused(tls_world: World) -> None:
    dialer = tls_world.dial()
    tls_world.run_until_refused("tls")
    tls_world.run(lambda: dialer.closed)


def test_another_certificate_than_the_pinned_one_is_refused(tls_world: World) -> None:
    refusals = Refusals()
    dialer = tls_world.dial(pin=Identity.make().pin, refusals=refusals)
    dialer.send(1, 2, [b"a record"])
    tls_world.run_until_refused("truncated")
    assert refusals.counts() == {"bad_pin": 1}
    assert IDENTITY.pin.hex()[:16] in (dialer.close_reason or "")
    assert tls_world.received[tls_world.accepted[0]] == []


def test_a_tls_peer_without_the_secret_is_refused(tls_world: World) -> None:
    dialer = tls_world.dial(pin=IDENTITY.pin, config={"secret": b"a guess of the secret"})
    tls_world.run_until_refused("truncated")
    assert "bad_proof" in (dialer.close_reason or "")


def test_random_bytes_instead_of_tls_are_refused(tls_world: World) -> None:
    tls_world.stranger(b"\x16\x03\x01" + b"\xff" * 300)
    tls_world.run_until_refused("tls")


def test_only_tls_1_3_is_spoken(tls_world: World) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        old.wrap_bio(incoming, outgoing).do_handshake()
    tls_world.stranger(outgoing.read())
    tls_world.run_until_refused("tls")


def test_openssl_takes_the_key_and_agrees_with_the_certificates_signature(tmp_path: Path) -> None:
    """That the key fits the certificate, `context` finds out: it would raise."""
    assert IDENTITY.context().minimum_version == ssl.TLSVersion.TLSv1_3
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command to check a signature with")
    file = tmp_path / "certificate.pem"
    file.write_text(ssl.DER_cert_to_PEM_cert(IDENTITY.certificate))
    verify = [openssl, "verify", "-check_ss_sig", "-CAfile", str(file), str(file)]
    assert b"OK" in subprocess.run(verify, check=True, capture_output=True).stdout


@pytest.mark.parametrize(
    ("factor", "x"),
    [  # from the test vectors of NIST's curve P-256
        (1, 0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296),
        (20, 0x83A01A9378395BAB9BCD6A0AD03CC56D56E6B19250465A94A234DC4C6B28DA9A),
        (
            115792089210356248762697446949407573529996955224135760342422259061068512044368,
            0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        ),
    ],
)
def test_points_of_the_curve_are_multiplied_as_the_standard_says(factor: int, x: int) -> None:
    assert identities.times(factor, identities._G)[0] == x


@given(st.binary(min_size=64, max_size=64))
@settings(max_examples=20)
def test_a_secret_carries_the_pin_of_its_identity(token: bytes) -> None:
    secret = new_secret(IDENTITY)
    assert pin_in(secret) == IDENTITY.pin == hashlib.sha256(IDENTITY.certificate).digest()
    assert secret != new_secret(IDENTITY)
    with pytest.raises(ValueError, match="with a pin it has 64"):
        pin_in(token[1:])


def test_a_key_shows_nowhere() -> None:
    assert IDENTITY.key.hex() not in repr(IDENTITY)
    assert repr(IDENTITY.key) not in repr(IDENTITY)
    assert dialer_context() is dialer_context()
