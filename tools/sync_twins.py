"""The table of `generate_sync`: which async classes have a blocking twin, and how they differ.

A class or method that is renamed in an async module is renamed here, too. A new public method needs
a line here only if it does not follow the rules.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Twin:
    """A blocking class, and where it does not follow the rules."""

    base: str = ""
    """Its hand-written base class, if it has one."""
    on_loop: str = "self._on_loop"
    """The async object. A base class may have it under another name."""
    narrows: bool = False
    """Whether the base class declares the async object with a wider type."""
    by_hand: tuple[str, ...] = ()
    """Public names that the base class has."""
    internal: tuple[str, ...] = ()
    """Names without an underscore that programs do not use."""
    only: tuple[str, ...] = ()
    """The names to generate, for a class in which most are by hand or internal."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes that `__init__` sets without declaring a type, and their types."""
    same_as: Mapping[str, str] = field(default_factory=dict)
    """Methods that do the same as one of the base class."""
    constructor_omits: tuple[str, ...] | None = None
    """Parameters of the async constructor that the blocking one lacks.

    None: only this package calls the constructor, with the thread and the async object.
    """
    all_on_loop: bool = False
    """Whether plain methods run on the loop, too: those of the async object are not thread-safe."""
    is_locked: bool = False
    """Whether its methods call an object that is not async, under a lock of the base class."""
    undo: Mapping[str, str] = field(default_factory=dict)
    """What undoes a method that was executed although its caller was interrupted."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """What is generated from one async module."""

    classes: Mapping[str, Twin] = field(default_factory=dict)
    functions: tuple[str, ...] = ()
    """Functions that return a pending client."""
    aliases: tuple[str, ...] = ()
    """Type aliases and data classes that are copied: they name a class of this module."""


def file_of(module: str) -> str:
    """Return the name of the generated module: with its package, if it is one of many clients."""
    _, package, name = module.rsplit(".", 2)
    return name if name != "client" or package == "client" else f"{package}_client"


NAMED: Final = Twin(attributes={"name": "str"})

MODULES: Final[Mapping[str, Module]] = {
    "leasehold.client.client": Module(
        classes={
            "Client": Twin(
                base="ClientBase",
                on_loop="self._client",
                by_hand=(
                    *("close", "renewal_event", "register", "services", "report_failure"),
                    *("discovery_service", "find_discovery_service"),
                ),
                internal=("engine", "who"),
                undo={"lease": "granted", "keep": "adopted"},
            )
        }
    ),
    "leasehold.client.connecting": Module(functions=("connect",)),
    "leasehold.client.opening": Module(functions=("open_client",)),
    "leasehold.client.kv": Module(classes={"KV": Twin(), "TxnBuilder": Twin()}),
    "leasehold.sessions.held_lease": Module(
        classes={
            "HeldLease": Twin(
                base="LeaseBase",
                on_loop="self.held",
                only=(
                    *("id", "is_held", "loss", "expires_at", "term", "grantor", "cookie"),
                    *("to_bytes", "renew", "cancel", "detach"),
                ),
                attributes={"id": "int"},
                same_as={"cancel": "end"},
            )
        },
        aliases=("Callback",),
    ),
    "leasehold.leases.lease": Module(
        classes={
            "Lease": Twin(
                base="LeaseHandle",
                on_loop="self.on_loop",
                only=("remaining", "expires_at", "term", "renew", "cancel", "to_bytes"),
            )
        }
    ),
    "leasehold.leases.renewal_manager": Module(
        classes={
            "RenewalManager": Twin(
                base="RenewalBase",
                constructor_omits=("timing", "on_trouble", "clock"),
                all_on_loop=True,
                internal=("lateness_s",),
                same_as={"close": "_close"},
            )
        },
        aliases=("RenewalNotice", "Listener"),
    ),
    "leasehold.landlord.landlord": Module(
        classes={
            "Landlord": Twin(
                base="LandlordBase[R]",
                on_loop="self._landlord",
                is_locked=True,
                only=(
                    *("now", "grant", "answer", "renew", "cancel", "resource"),
                    "lease_from_bytes",
                ),
            )
        }
    ),
    "leasehold.landlord.remote_landlord": Module(
        classes={
            "RemoteLandlord": Twin(
                base="LoopObject[on_loop.RemoteLandlord]",
                constructor_omits=("clock",),
                all_on_loop=True,
                internal=("clock", "endpoints", "renew_all", "cancel_all"),
                same_as={"close": "_close"},
                undo={"grant": "on_loop.RemoteLease.cancel"},
            )
        }
    ),
    "leasehold.events.client": Module(
        classes={
            "Mailbox": Twin(
                base="MailboxBase",
                attributes={"id": "str"},
                by_hand=("lease", "target", "events"),
                internal=("create", "find"),
            )
        }
    ),
    "leasehold.renewal.client": Module(
        classes={
            "RenewalSet": Twin(
                base="RenewalSetBase",
                attributes={"id": "str"},
                by_hand=(
                    *("lease", "leases", "remove"),
                    *("set_failure_listener", "set_warning_listener"),
                ),
            )
        }
    ),
    "leasehold.discovery.client": Module(
        classes={
            "RemoteDiscovery": Twin(
                base="RemoteDiscoveryBase",
                attributes={"id": "str"},
                by_hand=("register", "event", "close"),
                internal=("call", "show"),
            ),
            "DiscoveryRegistration": Twin(
                base="DiscoveryRegistrationBase",
                attributes={"id": "str"},
                by_hand=("lease", "event_registration"),
            ),
        }
    ),
    "leasehold.registry.client": Module(
        classes={
            "Registry": Twin(
                base="RegistryBase",
                by_hand=("lookup", "watch", "notify"),
                internal=("change", "clock", "close", "one_passing", "passing", "watched"),
            ),
            "Registration": Twin(
                base="RegistrationBase", attributes={"id": "str"}, by_hand=("lease",)
            ),
        }
    ),
    "leasehold.files.client": Module(
        classes={
            "Files": Twin(
                base="FilesBase",
                by_hand=("open", "list", "open_files", "fsck"),
                internal=(
                    *(
                        "known_config",
                        "namespace",
                        "stores",
                        "tree",
                        "recoverer",
                        "holder",
                        "opener",
                    ),
                    "close",
                ),
            )
        }
    ),
    "leasehold.files.reader": Module(
        classes={
            "FileReader": Twin(
                base="FileReaderBase",
                attributes={"id": "str", "path": "str"},
                by_hand=("close",),
                internal=("load",),
            )
        }
    ),
    "leasehold.files.writer": Module(
        classes={
            "FileWriter": Twin(
                base="FileWriterBase",
                attributes={"id": "str"},
                by_hand=("close", "abort"),
                internal=("lost", "unlinked"),
            )
        }
    ),
    "leasehold.admin.client": Module(classes={"Admin": Twin()}),
    "leasehold.registry.registered_service": Module(
        classes={
            "RegisteredService": Twin(
                base="RegisteredServiceBase",
                by_hand=("maintain", "update", "close"),
                internal=("begin",),
            )
        }
    ),
    "leasehold.discovery.discovery": Module(
        classes={
            "Discovery": Twin(
                base="DiscoveryBase",
                constructor_omits=("network",),
                all_on_loop=True,
                by_hand=("add_listener", "remove_listener"),
                same_as={"close": "_close"},
            )
        }
    ),
    "leasehold.discovery.join": Module(
        classes={
            "Join": Twin(
                base="JoinBase",
                constructor_omits=("connect", "clock"),
                all_on_loop=True,
                by_hand=("discovery",),
                internal=(
                    *("all_state", "discard", "connect", "register"),
                    *("keep", "release", "backoff"),
                ),
                same_as={"close": "_close"},
            )
        }
    ),
    "leasehold.locks.queued_locks": Module(
        classes={
            "RWLock": NAMED,
            "Semaphore": Twin(
                base="GuardedHandle", narrows=True, attributes={"name": "str", "limit": "int"}
            ),
        }
    ),
    "leasehold.locks.barrier": Module(
        classes={"Barrier": Twin(attributes={"name": "str", "parties": "int"})}
    ),
    "leasehold.locks.election": Module(
        classes={
            "Leadership": Twin(
                base="Guard",
                on_loop="self._guard",
                narrows=True,
                attributes={"value": "bytes"},
                same_as={"resign": "release"},
            ),
            "Election": NAMED,
        }
    ),
    "leasehold.locks.permits": Module(
        classes={
            "Permits": Twin(
                base="PermitChecks",
                on_loop="self._permits",
                by_hand=("check",),
                internal=("cache", "grants"),
                undo={"grant": "self._permits.grants.undo"},
            )
        }
    ),
}
"""The async modules, and the classes and functions that have a generated counterpart."""

BY_HAND: Final[Mapping[str, str]] = {
    "Check": "leasehold.sync.lease_base",
    "Guard": "leasehold.sync.guard",
    "Lock": "leasehold.sync.lock",
    "Observation": "leasehold.sync.iterators",
    "OnLoss": "leasehold.sync.guard",
    "Watch": "leasehold.sync.iterators",
}
"""Types that an async signature names, and the modules of their hand-written counterparts."""

TWINS: Final[Mapping[str, str]] = {
    **BY_HAND,
    **{
        name: f"leasehold.sync.generated.{file_of(source)}"
        for source, module in MODULES.items()
        for name in (*module.classes, *module.aliases)
    },
}
"""All blocking types, and their modules."""

RENAMED: Final[Mapping[str, str]] = {"QueueGuard": "Guard", "RemoteLease": "Lease", "L": "Lease"}
"""Types of an async signature whose counterpart has another name."""

HELPERS: Final[Mapping[str, str]] = {
    "ClientBase": "leasehold.sync.client_base",
    "DiscoveryBase": "leasehold.sync.discovery",
    "DiscoveryRegistrationBase": "leasehold.sync.discovery_service",
    "FileReaderBase": "leasehold.sync.open_file",
    "FileWriterBase": "leasehold.sync.open_file",
    "FilesBase": "leasehold.sync.files",
    "GuardedHandle": "leasehold.sync.guard",
    "JoinBase": "leasehold.sync.join",
    "LandlordBase": "leasehold.sync.landlord",
    "LeaseBase": "leasehold.sync.lease_base",
    "LeaseHandle": "leasehold.sync.lease_base",
    "LoopObject": "leasehold.sync.client_base",
    "LoopThread": "leasehold.sync.loop_thread",
    "MailboxBase": "leasehold.sync.renewal_set",
    "PermitChecks": "leasehold.sync.lock",
    "RegisteredServiceBase": "leasehold.sync.registry",
    "RegistrationBase": "leasehold.sync.registry",
    "RegistryBase": "leasehold.sync.registry",
    "RemoteDiscoveryBase": "leasehold.sync.discovery_service",
    "RenewalBase": "leasehold.sync.client_base",
    "RenewalSetBase": "leasehold.sync.renewal_set",
    "Self": "typing",
    "all_on_loop": "leasehold.sync.client_base",
    "begin_watch": "leasehold.sync.iterators",
    "check_in_thread": "leasehold.sync.lease_base",
    "check_plain_callback": "leasehold.basics.callbacks",
    "lease_on_loop": "leasehold.sync.lease_base",
    "make_client": "leasehold.sync.client_base",
    "managed_on_loop": "leasehold.sync.client_base",
    "obtain": "leasehold.sync.guard",
    "obtain_set": "leasehold.sync.renewal_set",
    "open_writer": "leasehold.sync.open_file",
    "referred": "leasehold.sync.renewal_set",
    "report_loss": "leasehold.sync.guard",
}
"""Names in generated bodies, and their modules."""

ENDED_BY: Final[Mapping[str, str]] = {
    "Client": "closed",
    "FileWriter": "closed",
    "Guard": "released",
    "HeldLease": "ended",
    "Leadership": "resigned",
    "RenewalSet": "used",
}
"""What a program does with the result of a call that the async client awaits or enters."""

ARGUMENTS: Final[Mapping[str, str]] = {
    "Callable[[str], object] | None": "self._in_thread({})",
    "Discovery | None": "self._use({})",
    "HeldLease | Lease | LeaseReference": "referred({})",
    "HeldLease | int": "lease_on_loop({})",
    "HeldLease | int | None": "None if {0} is None else lease_on_loop({0})",
    "Lease": "managed_on_loop({})",
    "Listener | None": "self._listener({}, RenewalNotice)",
    "Mapping[Lease, End] | None": "all_on_loop({})",
}
"""What is passed on for a parameter of a blocking type."""

CALLBACKS: Final = ("while_healthy", "on_jeopardy", "on_loss")
"""Parameters that are functions of the program, called in other threads."""

LOST: Final = "in which the block waits raises `{}` then, or else its next call, or its end"

PHRASES: Final[Mapping[str, str]] = {
    "to be awaited, or entered": "to be {ended_by}, or entered",
    "`async with`": "`with`",
    "an async iterator": "an iterator",
    "is cancelled, a lease": "is interrupted, a lease",
    "A caller that is cancelled": "A caller that is interrupted",
    "If the caller is cancelled": "If the caller is interrupted",
    "is called if": "is called in a separate thread if",
    "`cancel_on_loss` the block is cancelled then, and raises `LockLost`": (
        "`cancel_on_loss` the call of this package " + LOST.format("LockLost")
    ),
    "`cancel_on_loss` the block is cancelled, and raises `LockLost`": (
        "`cancel_on_loss` the call of this package " + LOST.format("LockLost")
    ),
    "a check, a plain or an async function, that": "a check that",
    (
        "are callbacks; with `cancel_on_loss` the block is cancelled if the lease is lost, and "
        "raises `LeaseLost`."
    ): (
        "are callbacks. All three run in separate threads, and may block: renewals of other leases "
        "do not wait for them.\n\nIf the lease is lost, with `cancel_on_loss` the call of this "
        f"package {LOST.format('LeaseLost')}."
    ),
    (
        "It belongs to the event loop and the process that made it. Calls from another event loop "
        "raise `RuntimeError`, calls in a child process raise `Forked`; neither has any other "
        "effect."
    ): (
        "Any number of threads may use it at the same time. It belongs to the process that made "
        "it: calls in a child process raise `Forked`, and have no other effect."
    ),
    "A promise with an end, as its holder sees it.": (
        "A lease of a landlord, on the side of its holder. Thread-safe.\n\nIts state is read in "
        "the caller's thread; `renew` and `cancel` run on the loop's thread."
    ),
    "takes the resources back when the leases end.": (
        "takes the resources back when the leases end.\n\nAny thread may call it. "
        "`leasehold.Landlord` is the same for one thread."
    ),
    "Renews a set of leases, each until its own desired end.": (
        "Renews a set of leases, each until its own desired end. Thread-safe.\n\nListeners are "
        "called one at a time and in order, in a thread that is not the loop's: they may block, "
        "and call the manager."
    ),
    " A `timing` replaces these two.": "",
    "\n\n`on_trouble(lease, error)` is called for each renewal that has failed and is retried.": "",
    "and abort the renewals under way.": (
        "and abort the renewals under way.\n\nDoes nothing in a forked child."
    ),
    "that another process serves with `serve_landlord`.": (
        "that another process serves with `serve_landlord`. Thread-safe."
    ),
    "a lease without a holder; it expires.": (
        "a lease without a holder; it expires. If the caller is interrupted, the lease is "
        "cancelled."
    ),
    "close the connection. No lease is ended.": (
        "close the connection. No lease is ended.\n\nDoes nothing in a forked child."
    ),
    "It is made in a running event loop, and begins immediately.": (
        "It begins immediately, and is thread-safe. Listeners are called in a separate thread, one "
        "at a time and in order: they may block, and call it."
    ),
    "events, and none about its end.": (
        "events, and none about its end.\n\nDoes nothing in a forked child."
    ),
    "`on_id` is called once, with the id of the service: immediately if the item has one,": (
        "`on_id` is called once in a separate thread, with the id of the service: immediately if "
        "the item has one,"
    ),
    "Calls that change the service return immediately.": (
        "It is thread-safe. Calls that change the service do not wait for registrars."
    ),
    "Later changes raise errors.": (
        "Later changes raise errors.\n\nDoes nothing in a forked child."
    ),
    "first change after the block is entered": "first change after this returns",
    "It ends with `Compacted` or `HistoryLost` only. `timeout` is for entering the block": (
        "It ends if it is cancelled, also by another thread, and with `Compacted` or "
        "`HistoryLost`. `timeout` is for the start"
    ),
    "It ends with `HistoryLost` or `Closed`.": (
        "It ends with `HistoryLost` or `Closed`, and when it is cancelled."
    ),
    "leasehold.connect": "leasehold.sync.connect",
    "leasehold.open": "leasehold.sync.open",
    "async with ": "with ",
    "async for ": "for ",
    "await ": "",
}
"""Wording of async docstrings, and of blocking ones, replaced in this order."""

UNWANTED: Final = re.compile(r"await|async|event loop|coroutine|\btask\b")
"""Words of async code: a docstring that has one needs another line in `PHRASES`."""
