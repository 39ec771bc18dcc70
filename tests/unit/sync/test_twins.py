"""`leasehold.sync` has the names of the async client, and its methods the same parameters."""

import gc
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import leasehold.client.connecting
import leasehold.client.kv
import leasehold.client.opening
import leasehold.events.client
import leasehold.locks.permits
import leasehold.sessions.held_lease
import leasehold.sync
from leasehold.locks.barrier import Barrier
from leasehold.locks.election import Election, Leadership, Observation
from leasehold.locks.queued_locks import QueueGuard, RWLock, Semaphore

TWINS: list[tuple[type, type]] = [
    (leasehold.Client, leasehold.sync.Client),
    (leasehold.client.kv.KV, leasehold.sync.KV),
    (leasehold.client.kv.TxnBuilder, leasehold.sync.TxnBuilder),
    (leasehold.locks.permits.Permits, leasehold.sync.Permits),
    (leasehold.HeldLease, leasehold.sync.HeldLease),
    (leasehold.Watch, leasehold.sync.Watch),
    (leasehold.Lock, leasehold.sync.Lock),
    (leasehold.Guard, leasehold.sync.Guard),
    (QueueGuard, leasehold.sync.Guard),
    (RWLock, leasehold.sync.RWLock),
    (Semaphore, leasehold.sync.Semaphore),
    (Barrier, leasehold.sync.Barrier),
    (Election, leasehold.sync.Election),
    (Leadership, leasehold.sync.Leadership),
    (Observation, leasehold.sync.Observation),
]

TWINS += [
    (leasehold.Lease, leasehold.sync.Lease),
    (leasehold.Landlord, leasehold.sync.Landlord),
    (leasehold.RemoteLandlord, leasehold.sync.RemoteLandlord),
    (leasehold.RenewalManager, leasehold.sync.RenewalManager),
    (leasehold.RenewalSet, leasehold.sync.RenewalSet),
    (leasehold.events.client.Mailbox, leasehold.sync.Mailbox),
    (leasehold.Registry, leasehold.sync.Registry),
    (leasehold.Files, leasehold.sync.Files),
    (leasehold.FileReader, leasehold.sync.FileReader),
    (leasehold.FileWriter, leasehold.sync.FileWriter),
    (leasehold.Admin, leasehold.sync.Admin),
    (leasehold.Registration, leasehold.sync.Registration),
    (leasehold.RegisteredService, leasehold.sync.RegisteredService),
    (leasehold.Discovery, leasehold.sync.Discovery),
    (leasehold.Join, leasehold.sync.Join),
    (leasehold.RemoteDiscovery, leasehold.sync.RemoteDiscovery),
    (leasehold.DiscoveryRegistration, leasehold.sync.DiscoveryRegistration),
]

OF_GUARDS = {
    *("as_lost", "enter", "hand_over", "leave", "lose", "nest", "put_back", "put_by", "reference"),
    *("settle", "take_back", "twin", "was_lost"),
}

INTERNAL: dict[type, set[str]] = {
    leasehold.Lease: {
        *("ask_cancel", "ask_cancel_all", "ask_renew", "ask_renew_all", "batch_key"),
        *("call_limit_key", "holding", "lasts_until", "send", "settle", "unwatch", "watch"),
    },
    leasehold.Landlord: {"expire_one", "reap"},
    leasehold.Registry: {"change", "close", "one_passing", "passing", "watched"},
    leasehold.Files: {"close"},
    leasehold.FileReader: {"load"},
    leasehold.FileWriter: {"lost", "unlinked"},
    leasehold.RegisteredService: {"begin"},
    leasehold.Join: {
        *("all_state", "backoff", "connect", "discard", "keep", "register", "release"),
    },
    leasehold.RemoteDiscovery: {"call", "show"},
    leasehold.events.client.Mailbox: {"create", "find"},
    leasehold.RemoteLandlord: {"cancel_all", "endpoints", "renew_all"},
    leasehold.HeldLease: {
        *("as_lost", "ask_cancel", "ask_cancel_all", "ask_renew", "ask_renew_all", "batch_key"),
        *("call_limit_key", "can_batch", "holding", "kept"),
        *("lasts_until", "patience_s", "send", "settle", "unwatch", "watch"),
    },
    leasehold.Lock: {
        *("acquire_cached", "entered", "latest", "left", "note", "obtain"),
        "release_each",
    },
    leasehold.Guard: {*OF_GUARDS, "options"},
    leasehold.Watch: {"patience_s"},
    QueueGuard: OF_GUARDS,
    Leadership: OF_GUARDS,
}
"""Names without an underscore that other modules of the package use, and programs do not."""

OF_ANOTHER_TYPE = {"listener", "while_healthy", "on_jeopardy", "on_loss", "lease"}
"""Parameters that are or get a lease: of the twin's type, and a check that is not awaited."""


def _public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - INTERNAL.get(kind, set())


def _methods() -> Iterator[Any]:
    for on_loop, twin in TWINS:
        for name in sorted(_public(on_loop)):
            if inspect.isfunction(getattr(on_loop, name)):
                yield pytest.param(
                    getattr(on_loop, name), getattr(twin, name, None), id=f"{twin.__name__}.{name}"
                )
    yield pytest.param(leasehold.connect, leasehold.sync.connect, id="connect")
    yield pytest.param(leasehold.open, leasehold.sync.open, id="open")


@pytest.mark.parametrize(("on_loop", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_no_public_name_is_missing(on_loop: type, twin: type) -> None:
    assert _public(on_loop) <= _public(twin)


@pytest.mark.parametrize(("on_loop", "twin"), list(_methods()))
def test_each_method_has_the_same_parameters(
    on_loop: Callable[..., object], twin: Callable[..., object]
) -> None:
    ours, theirs = inspect.signature(twin).parameters, inspect.signature(on_loop).parameters
    assert list(ours) == list(theirs)
    for name, theirs_is in theirs.items():
        ours_is = ours[name]
        assert (ours_is.kind, ours_is.default) == (theirs_is.kind, theirs_is.default), name
        if name not in OF_ANOTHER_TYPE:
            assert ours_is.annotation == theirs_is.annotation, name


@pytest.mark.parametrize(("on_loop", "twin"), list(_methods()))
def test_each_method_gives_the_same_unless_it_gives_a_twin(
    on_loop: Callable[..., object], twin: Callable[..., object]
) -> None:
    ours = inspect.signature(twin).return_annotation
    theirs = inspect.signature(on_loop).return_annotation
    twins = {kind.__name__ for kind, _ in TWINS}
    if inspect.isasyncgenfunction(on_loop):
        assert inspect.isgeneratorfunction(twin)
    elif str(theirs).startswith("collections.abc.AsyncGenerator"):
        iterators = ("leasehold.sync.registry.Changes", "collections.abc.Generator")
        assert str(ours).startswith(iterators)
    elif any(name in str(theirs) for name in twins):
        assert any(name in str(ours) for name in (*twins, "Self"))
    else:
        assert ours == theirs


OF_SIMULATIONS = {"clock", "connect", "network", "on_trouble", "timing"}
"""Parameters of constructors that only tests and this package use."""


@pytest.mark.parametrize(
    "name", ["Discovery", "Join", "Landlord", "RemoteLandlord", "RenewalManager"]
)
def test_each_public_constructor_has_the_same_parameters(name: str) -> None:
    def parameters(kind: type) -> list[tuple[str, object, object]]:
        listed = inspect.signature(kind).parameters.values()
        omitted = OF_SIMULATIONS | {"lease_factory"}
        return [(each.name, each.kind, each.default) for each in listed if each.name not in omitted]

    assert parameters(getattr(leasehold.sync, name)) == parameters(getattr(leasehold, name))


@pytest.mark.parametrize("twin", [twin for _, twin in TWINS] + [leasehold.sync.Signal])
def test_each_public_method_has_a_docstring(twin: type) -> None:
    assert twin.__doc__
    for name in _public(twin):
        member = inspect.getattr_static(twin, name)
        if isinstance(member, property) or inspect.isfunction(member):
            assert inspect.getdoc(getattr(twin, name)), name


@pytest.mark.parametrize("given", [(), ("127.0.0.1:2379",)])
def test_a_client_that_a_program_constructs_names_the_functions_to_use(given: Any) -> None:
    with pytest.raises(TypeError, match=r"use leasehold\.sync\.connect\(\)"):
        leasehold.sync.Client(*given, timeout=5)  # type: ignore[call-arg]
    gc.collect()  # an exception of a finalizer would be an error


def test_nothing_public_has_to_be_awaited() -> None:
    for _, twin in TWINS:
        for name in _public(twin):
            assert not inspect.iscoroutinefunction(getattr(twin, name)), name


def test_all_names_of_the_module_can_be_imported() -> None:
    for name in leasehold.sync.__all__:
        assert getattr(leasehold.sync, name).__doc__
    assert (
        not set(leasehold.sync.__all__) - {"KV", "Permits", "TxnBuilder"} - set(leasehold.__all__)
    )
