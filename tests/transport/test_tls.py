"""TLS beneath a connection: the same frames, and strangers refused."""

from __future__ import annotations

import select
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.transport.listener import TcpListener
from tailrace.transport.tcp import Refusals, TcpConfig
from tests.transport.world import (
    World,
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    chain, key = folder / "certificate.pem", folder / "key.pem"
    request = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=tailrace"
    )
    names = "subjectAltName=IP:127.0.0.1"
    subprocess.run(
        [openssl, *request.split(), "-addext", names, "-keyout", key, "-out", chain],
        check=True,
        capture_output=True,
    )
    return chain, key


@pytest.fixture
def tls_world(certificate: tuple[Path, Path]) -> Iterator[World]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with World(tls=context) as made:
        yield made


def test_tls_carries_frames_of_all_sizes_both_ways(
    tls_world: World, certificate: tuple[Path, Path]
) -> None:
    context = ssl.create_default_context(cafile=certificate[0])
    dialer = tls_world.dial(tls=context, server_name="127.0.0.1")
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


def test_a_certificate_nobody_vouches_for_is_refused(tls_world: World) -> None:
    refusals = Refusals()
    dialer = tls_world.dial(
        tls=ssl.create_default_context(), server_name="127.0.0.1", refusals=refusals
    )
    tls_world.run_until_refused("tls")
    assert refusals.counts() == {"tls": 1}
    assert "CERTIFICATE_VERIFY_FAILED" in (dialer.close_reason or "")


def test_a_tls_peer_without_the_secret_is_refused(
    tls_world: World, certificate: tuple[Path, Path]
) -> None:
    context = ssl.create_default_context(cafile=certificate[0])
    dialer = tls_world.dial(
        tls=context, server_name="127.0.0.1", config={"secret": b"a guess of the secret"}
    )
    tls_world.run_until_refused("truncated")
    assert "bad_proof" in (dialer.close_reason or "")


def test_random_bytes_instead_of_tls_are_refused(tls_world: World) -> None:
    tls_world.stranger(b"\x16\x03\x01" + b"\xff" * 300)
    tls_world.run_until_refused("tls")


def test_a_context_of_the_wrong_side_is_refused() -> None:
    context = ssl.create_default_context()
    with pytest.raises(ValueError, match="it must be for a server"):
        TcpListener(TcpConfig(1, b"secret of the job"), ("127.0.0.1", 0), Refusals(), tls=context)
