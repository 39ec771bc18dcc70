"""What a permit is, as it is written down; what is refused; and what is none."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import leasehold
from leasehold.locks import permits as permits_module
from leasehold.locks.permit import (
    MAX_NAME_BYTES,
    SKEW_ALLOWANCE_S,
    check_rights,
    names_of,
    read,
    read_names,
)
from tests.support.asynchronous import asynchronous

KEY = names_of("anna", "hall").key
VALUE = {"rights": ["in", "out"], "granted_by": "ops", "own_lease": True}


def test_the_layout_is_what_the_docs_say() -> None:
    assert KEY == b"leasehold/permits/anna/hall"
    assert names_of("a/b", "50% é\0").key == b"leasehold/permits/a%2Fb/50%25%20%C3%A9%00"


@asynchronous
async def test_what_is_granted_is_written_as_json_in_order() -> None:
    async with leasehold.open("memory:") as client:
        permit = await client.permits.grant("anna", "hall", {"out", "in"}, 60, granted_by="ops")
        pair = await client.kv.get(KEY)
        assert pair is not None
        value = json.loads(pair.value)
        ends_at_ms = value.pop("ends_at_ms")
        assert value == VALUE
        assert permit.ends_at == datetime.fromtimestamp(ends_at_ms / 1000, UTC)
        assert permit.ends_at - datetime.now(UTC) <= timedelta(seconds=60)
        assert pair.lease == permit.lease
        assert permit.revision == pair.mod_revision
        assert read(pair) == permit
        assert permit.allows("in")
        assert not permit.allows("dance")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        json.dumps(VALUE | {"rights": []}).encode(),
        json.dumps(VALUE | {"rights": "in"}).encode(),
        json.dumps(VALUE | {"rights": ["in", 5]}).encode(),
        json.dumps(VALUE | {"rights": ["in", ""]}).encode(),
        json.dumps(VALUE | {"rights": {"in": 1}}).encode(),
        json.dumps(VALUE | {"granted_by": None}).encode(),
        json.dumps(VALUE | {"own_lease": 1}).encode(),
        json.dumps(VALUE | {"ends_at_ms": None}).encode(),
        json.dumps(VALUE | {"ends_at_ms": True}).encode(),
        json.dumps(VALUE | {"ends_at_ms": 1.9e15}).encode(),
        json.dumps(VALUE | {"ends_at_ms": "2031-01-01"}).encode(),
        json.dumps(VALUE | {"ends_at_ms": 10**30}).encode(),
    ],
)
@asynchronous
async def test_what_is_written_otherwise_gives_no_right_and_can_be_revoked(value: bytes) -> None:
    async with leasehold.open("memory:") as client, client.lease(60) as lease:
        permits = client.permits
        await client.kv.put(KEY, value, lease=lease)
        assert not await permits.check("anna", "hall", "in")
        assert await permits.get("anna", "hall") is None
        assert await permits.list() == []
        assert await permits.revoke("anna", "hall")
        assert await client.kv.get(KEY) is None
        await client.kv.put(KEY, value, lease=lease)
        await permits.grant("anna", "hall", ["in"], lease=lease)
        assert await permits.check("anna", "hall", "in")


@asynchronous
async def test_a_permit_of_an_earlier_release_has_no_end_but_its_lease() -> None:
    async with leasehold.open("memory:") as client, client.lease(60) as lease:
        await client.kv.put(KEY, json.dumps(VALUE), lease=lease)
        assert await client.permits.check("anna", "hall", "in")
        permit = await client.permits.get("anna", "hall")
        assert permit is not None
        assert permit.ends_at is None


@asynchronous
async def test_a_permit_whose_end_has_passed_gives_no_right_and_can_be_revoked() -> None:
    async with leasehold.open("memory:") as client, client.lease(60) as lease:
        ended = (datetime.now(UTC) - timedelta(seconds=SKEW_ALLOWANCE_S)).timestamp()
        value = json.dumps(VALUE | {"ends_at_ms": int(ended * 1000)})
        await client.kv.put(KEY, value, lease=lease)
        permits = client.permits
        assert not await permits.check("anna", "hall", "in")
        assert not await permits.check("anna", "hall", "in", cache=False)
        assert await permits.get("anna", "hall") is None
        assert await permits.list() == []
        assert await permits.revoke("anna", "hall")


@asynchronous
async def test_a_key_without_a_lease_would_never_end_and_is_no_permit() -> None:
    async with leasehold.open("memory:") as client:
        await client.kv.put(KEY, json.dumps(VALUE))
        assert not await client.permits.check("anna", "hall", "in")
        assert await client.permits.list() == []


@pytest.mark.parametrize(
    "key",
    [
        b"leasehold/permits/",
        b"leasehold/permits/anna",
        b"leasehold/permits/anna/",
        b"leasehold/permits//hall",
        b"leasehold/permits/anna/hall/",
        b"leasehold/permits/anna/h%61ll",
        b"leasehold/permits/anna/h%2fll",
        b"leasehold/permits/anna/%",
        b"leasehold/permits/anna/%FF",
        b"leasehold/permits/anna/\xc3\xa9",
    ],
)
def test_a_key_that_is_written_otherwise_is_no_permit(key: bytes) -> None:
    assert read_names(key) is None


@asynchronous
async def test_a_list_is_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits_module, "PAGE", 2)
    async with leasehold.open("memory:") as client, client.lease(60) as lease:
        names = [(subject, resource) for subject in "abc" for resource in "xyz"]
        for subject, resource in reversed(names):
            await client.permits.grant(subject, resource, ["in"], lease=lease)
        await client.kv.put("leasehold/permits/a/x/y", "of somebody else", lease=lease)
        listed = await client.permits.list()
        assert [(each.subject, each.resource) for each in listed] == names
        assert [each.resource for each in await client.permits.list("b")] == ["x", "y", "z"]
        assert [each.subject for each in await client.permits.list(resource="y")] == ["a", "b", "c"]


# What is refused.


@pytest.mark.parametrize("name", ["", "\ud800", "\xe9" * 2_049, None, b"anna", 5])
@asynchronous
async def test_names_are_texts_and_neither_empty_nor_too_long(name: Any) -> None:
    kind = ValueError if isinstance(name, str) else TypeError
    async with leasehold.open("memory:") as client:
        permits = client.permits
        calls: list[Any] = [
            lambda: permits.grant(name, "hall", ["in"], 60),
            lambda: permits.grant("anna", name, ["in"], 60),
            lambda: permits.grant("anna", "hall", [name], 60),
            lambda: permits.check(name, "hall", "in"),
            lambda: permits.check("anna", name, "in"),
            lambda: permits.check("anna", "hall", name),
            lambda: permits.get(name, "hall"),
            lambda: permits.revoke("anna", name),
        ]
        if name is not None:
            calls += [
                lambda: permits.grant("anna", "hall", ["in"], 60, granted_by=name),
                lambda: permits.list(name),
                lambda: permits.list(resource=name),
            ]
        for call in calls:
            with pytest.raises(kind, match=r"subject|resource|right|granted_by"):
                await call()
        assert not await client.leases()


@asynchronous
async def test_the_longest_names_are_granted() -> None:
    name = "\xe9" * (MAX_NAME_BYTES // 2)
    async with leasehold.open("memory:") as client:
        await client.permits.grant(name, name, [name], 60, granted_by=name)
        assert await client.permits.check(name, name, name)


@pytest.mark.parametrize("rights", ["in", b"in", None, 5])
def test_rights_are_a_collection_and_a_text_is_none(rights: Any) -> None:
    with pytest.raises(TypeError, match=r"such as \{'read'\}"):
        check_rights(rights)


def test_no_rights_are_refused() -> None:
    with pytest.raises(ValueError, match="or revoke the permit"):
        check_rights([])


@asynchronous
async def test_either_a_term_or_a_lease_is_given() -> None:
    async with leasehold.open("memory:") as client, client.lease(60) as lease:
        with pytest.raises(ValueError, match="either ttl or lease"):
            await client.permits.grant("anna", "hall", ["in"])
        with pytest.raises(ValueError, match="either ttl or lease"):
            await client.permits.grant("anna", "hall", ["in"], 60, lease=lease)
        with pytest.raises(ValueError, match="lease must be the id of an existing lease, not 0"):
            await client.permits.grant("anna", "hall", ["in"], lease=0)
        for ttl in (0, -1, float("nan")):
            with pytest.raises(ValueError, match="ttl"):
                await client.permits.grant("anna", "hall", ["in"], ttl)
        wrong: Any = "7a11"
        with pytest.raises(TypeError, match="lease"):
            await client.permits.grant("anna", "hall", ["in"], lease=wrong)
        assert [info.id for info in await client.leases()] == [lease.id]


@asynchronous
async def test_a_lease_that_is_lost_is_refused_before_anything_is_sent() -> None:
    async with leasehold.open("memory:") as client:
        lease = await client.lease(60)
        await lease.end()
        with pytest.raises(leasehold.LeaseLost):
            await client.permits.grant("anna", "hall", ["in"], lease=lease)
