"""Replica stores in S3: s3fs and a server of moto, on a loopback address."""

import socket

import fsspec
import pytest

from leasehold.files.replica_store import open_store
from tests.support.asynchronous import asynchronous
from tests.support.replica_store_rules import NAME, RULES, Rule, check
from tests.support.s3_fixtures import BUCKET, S3Server

pytestmark = pytest.mark.usefixtures("s3_settings")


@pytest.mark.parametrize("rule", RULES)
@asynchronous
async def test_every_rule_holds_in_s3(rule: Rule, s3_url: str) -> None:
    await check(rule, s3_url)


@asynchronous
async def test_a_missing_bucket_is_an_error_and_is_not_created() -> None:
    store = open_store("s1", "s3://missing/store")
    try:
        for _ in range(2):
            with pytest.raises(OSError, match="s3://missing/store does not exist") as raised:
                await store.put(NAME, b"data")
            assert not isinstance(raised.value, FileNotFoundError)
        assert await store.size(NAME) is None
    finally:
        await store.close()


@asynchronous
async def test_a_server_that_cannot_be_reached_is_an_os_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        options = fsspec.config.conf["s3"] | {
            "endpoint_url": f"http://127.0.0.1:{unused.getsockname()[1]}",
            "config_kwargs": {"retries": {"max_attempts": 0}},
        }
        monkeypatch.setitem(fsspec.config.conf, "s3", options)
        store = open_store("s1", f"s3://{BUCKET}/store")
        try:
            for call in (
                store.put(NAME, b"data"),
                store.read(NAME, 0, 1),
                store.size(NAME),
                store.list("", 1),
                store.delete(NAME),
            ):
                with pytest.raises(OSError, match="EndpointConnectionError"):
                    await call
        finally:
            await store.close()


@asynchronous
async def test_a_process_without_permission_gets_a_permission_error(
    s3_url: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = open_store("s1", s3_url)
    await owner.put(NAME, b"private")
    await owner.close()
    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": s3.endpoint, "anon": True})
    stranger = open_store("s1", s3_url)
    try:
        with pytest.raises(PermissionError):
            await stranger.read(NAME, 0, 1)
    finally:
        await stranger.close()
