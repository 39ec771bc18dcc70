"""TLS as required by HTTP/2: contexts for servers and clients, from files.

RFC 9113, section 9.2: TLS 1.2 or newer; no compression and no renegotiation; of TLS 1.2 only suites
with an ephemeral key exchange and an AEAD cipher; the protocol is negotiated by ALPN.

A file that cannot be read raises an `OSError` with its name, such as `FileNotFoundError`. A file
with wrong contents raises a `ValueError` with what would be right.
"""

import errno
import os
import re
import ssl
import stat
from pathlib import Path
from typing import Final, NoReturn

HTTP2: Final = "h2"
HTTP1: Final = "http/1.1"

SUITES: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Suites of TLS 1.2. All suites of TLS 1.3 are allowed."""

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""Limit of a file with certificates or a key: many times the size of all public authorities."""

_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_TRUSTED_CERTIFICATE: Final = b"-----BEGIN TRUSTED CERTIFICATE-----"  # by `openssl x509 -trustout`
_KEY: Final = b"PRIVATE KEY-----"
_ENCRYPTED: Final = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")
_OF_ANOTHER_KEY: Final = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}

File = str | os.PathLike[str]


def server_tls(cert: File, key: File, client_ca: File | None = None) -> ssl.SSLContext:
    """Return a server's context, from its PEM certificate (with the chain to the root) and key.

    With `client_ca`, each client must have a certificate that one of those in this file has signed.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols([HTTP2, HTTP1])
    _load_identity(context, Path(cert), Path(key))
    if client_ca is not None:
        _load_authorities(context, Path(client_ca))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_tls(
    ca: File | None = None, cert: File | None = None, key: File | None = None
) -> ssl.SSLContext:
    """Return a client's context, which accepts only servers with a certificate for their host name.

    `ca` holds the certificates of trusted authorities; None means those of this system. `cert` and
    `key` are for servers that ask for the client's own.
    """
    if (cert is None) != (key is None):
        has, lacks = ("key", "certificate") if cert is None else ("certificate", "key")
        raise ValueError(f"the client's {has} was given without its {lacks}: give both or neither")
    context = _context(ssl.PROTOCOL_TLS_CLIENT)  # which checks certificates and names
    context.set_alpn_protocols([HTTP2])
    if ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_authorities(context, Path(ca))
    if cert is not None and key is not None:
        _load_identity(context, Path(cert), Path(key))
    return context


def _context(purpose: int) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(SUITES)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context


def _load_identity(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    _check_certificate(cert, "certificate")
    _check_key(key)
    try:
        context.load_cert_chain(cert, key, password=lambda: _needs_password(key))
    except ssl.SSLError as error:
        if reason_of(error) in _OF_ANOTHER_KEY:
            raise ValueError(
                f"the key in {key} does not match the certificate in {cert}: use the key of that "
                "certificate; the server's own certificate must come first in its file"
            ) from None
        raise ValueError(
            f"the certificate in {cert} and the key in {key} cannot be used "
            f"({words_of(error)}): they may be damaged, or weaker than this system permits"
        ) from None


def _load_authorities(context: ssl.SSLContext, file: Path) -> None:
    _check_certificate(file, "authorities' certificates")
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise ValueError(
            f"the certificates in {file} cannot be used ({words_of(error)}): they may be damaged"
        ) from None


def _check_certificate(file: Path, what: str) -> None:
    content = _read(file, what)
    if _CERTIFICATE in content or _TRUSTED_CERTIFICATE in content:
        return
    found = "a private key" if _KEY in content else "something else"
    raise ValueError(
        f"{file} was given as the {what}, but contains {found}: it must be a PEM file with a "
        f"line {_CERTIFICATE.decode()}"
    )


def _check_key(file: Path) -> None:
    content = _read(file, "key")
    if any(mark in content for mark in _ENCRYPTED):
        _needs_password(file)
    if _KEY in content:
        return
    found = "a certificate" if _CERTIFICATE in content else "something else"
    raise ValueError(
        f"{file} was given as the key, but contains {found}: it must be a PEM file with a line "
        "-----BEGIN PRIVATE KEY-----"
    )


def _needs_password(key: Path) -> NoReturn:
    raise ValueError(
        f"the key in {key} is encrypted: decrypt it with `openssl pkey -in KEY -out "
        "NEW`, and name the new file"
    )


def _read(file: Path, what: str) -> bytes:
    try:
        status = file.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_FILE_BYTES:,} bytes")
        return file.read_bytes()
    except OSError as error:
        why = f"the {what} cannot be read: {error.strerror}"
        raise OSError(error.errno, why, str(file)) from None


def reason_of(error: ssl.SSLError) -> str:
    """Return OpenSSL's name for an error, such as KEY_VALUES_MISMATCH."""
    named: str | None = error.reason
    if named is not None:
        return named
    # OpenSSL has names that Python does not have yet; then they are in its text only.
    text = re.sub(r"^\[.*?\] | \(_ssl.*\)$", "", str(error.args[-1]))
    return text.replace(" ", "_").upper()


def words_of(error: ssl.SSLError) -> str:
    """Return OpenSSL's description of an error."""
    return reason_of(error).replace("_", " ").lower()
