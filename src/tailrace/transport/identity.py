"""Who a job is, for TLS: a key of its own and a certificate, made afresh when it starts.

Nobody vouches for the certificate. Who dials knows its fingerprint (the *pin*) from the job's
secret, and takes no other. So it needs no names, no authority and no dates, and hosts whose clocks
are wrong can talk.

Python's `ssl` cannot make keys, so that is done here: a random number, one multiplication on the
curve P-256 (FIPS 186-4), and the certificate around it (RFC 5280), signed by itself for form's
sake. All that protects a connection, key agreement and encryption included, is OpenSSL's.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import ssl
from dataclasses import dataclass, field
from functools import cache

PIN_BYTES = 32
TOKEN_BYTES = 32

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_EC_KEY = bytes.fromhex("06072A8648CE3D0201")  # the object identifiers, encoded
_P256 = bytes.fromhex("06082A8648CE3D030107")
_ECDSA_SHA256 = bytes.fromhex("06082A8648CE3D040302")
_COMMON_NAME = bytes.fromhex("0603550403")

Point = tuple[int, int]


@dataclass(frozen=True)
class Identity:
    """A job's certificate (DER) and its private key (DER, RFC 5915)."""

    certificate: bytes
    key: bytes = field(repr=False)

    @classmethod
    def make(cls) -> Identity:
        """A new one; takes some 10 ms."""
        private = 1 + secrets.randbelow(_ORDER - 1)
        public = _encoded(times(private, _G))
        key = _sequence(
            _integer(1),
            _tagged(0x04, private.to_bytes(32)),
            _tagged(0xA0, _P256),
            _tagged(0xA1, _bits(public)),
        )
        return cls(_certificate(private, public), key)

    @property
    def pin(self) -> bytes:
        """The certificate's fingerprint, by which others know it."""
        return hashlib.sha256(self.certificate).digest()

    def context(self) -> ssl.SSLContext:
        """The acceptor's side of TLS 1.3. Key and certificate never touch a disk."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # nobody resumes
        descriptor = os.memfd_create("tailrace-identity", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, _pem("EC PRIVATE KEY", self.key))
            os.write(descriptor, _pem("CERTIFICATE", self.certificate))
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return context


@cache
def dialer_context() -> ssl.SSLContext:
    """The dialer's side of TLS 1.3; whose certificate it is, is checked against the pin."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def new_secret(identity: Identity) -> bytes:
    """A secret that also says by which certificate whoever shares it is known."""
    return secrets.token_bytes(TOKEN_BYTES) + identity.pin


def pin_in(secret: bytes) -> bytes:
    """The pin that is part of such a secret."""
    if len(secret) != TOKEN_BYTES + PIN_BYTES:
        raise ValueError(
            f"the secret has {len(secret)} bytes; with a pin it has {TOKEN_BYTES + PIN_BYTES}"
        )
    return secret[TOKEN_BYTES:]


def times(factor: int, point: Point) -> Point:
    """A multiple of a point of the curve; the factor is from 1 to the order less 1.

    How long it takes tells something of the factor, so use it once for each. From the standard's
    examples:

    >>> hex(times(2, _G)[0])[:18]
    '0x7cf27b188d034f7e'
    """
    total: Point | None = None
    while factor:
        if factor & 1:
            total = point if total is None else _sum(total, point)
        factor >>= 1
        if factor:
            point = _sum(point, point)
    assert total is not None, "the factor is 0"
    return total


def _sum(one: Point, other: Point) -> Point:
    (x1, y1), (x2, y2) = one, other
    if x1 == x2:
        slope = 3 * (x1 * x1 - 1) * pow(2 * y1, -1, _P)  # a = -3
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, _P)
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def _certificate(private: int, public: bytes) -> bytes:
    algorithm = _sequence(_ECDSA_SHA256)
    name = _sequence(_tagged(0x31, _sequence(_COMMON_NAME, _tagged(0x0C, b"tailrace job"))))
    always = _sequence(_tagged(0x17, b"700101000000Z"), _tagged(0x18, b"99991231235959Z"))
    body = _sequence(
        _integer(1 + secrets.randbits(64)),
        algorithm,
        name,
        always,
        name,
        _sequence(_sequence(_EC_KEY, _P256), _bits(public)),
    )
    return _sequence(body, algorithm, _bits(_signature(private, body)))


def _signature(private: int, message: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest())
    while True:
        nonce = 1 + secrets.randbelow(_ORDER - 1)
        r = times(nonce, _G)[0] % _ORDER
        s = pow(nonce, -1, _ORDER) * (digest + r * private) % _ORDER
        if r and s:
            return _sequence(_integer(r), _integer(s))


def _encoded(point: Point) -> bytes:
    return b"\x04" + point[0].to_bytes(32) + point[1].to_bytes(32)


def _tagged(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(length)]) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _tagged(0x30, b"".join(parts))


def _integer(value: int) -> bytes:
    return _tagged(0x02, value.to_bytes(value.bit_length() // 8 + 1))


def _bits(content: bytes) -> bytes:
    return _tagged(0x03, b"\x00" + content)


def _pem(label: str, content: bytes) -> bytes:
    lines = base64.encodebytes(content)
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label.encode(), lines, label.encode())
