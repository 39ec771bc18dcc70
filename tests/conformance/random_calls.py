"""Random calls from a seed: few keys and leases, so that they meet; many of them wrong.

They depend on nothing but the seed, and on the revision that they begin at: revisions are counted
on from there. So any of them may be left out, and the others stay what they are.
"""

from random import Random
from typing import Any, Final

from leasehold.wire import rpc_pb2 as pb
from tests.conformance.client import delete_op, put_op, range_op, txn_op

KEYS: Final = tuple(b"k%d" % number for number in range(7))
LEASES: Final = (1, 2, 3, -4, -(1 << 63))
UNKNOWN_LEASE: Final = 404
FROM_KEY: Final = b"\x00"
KEY, VALUE = pb.RangeRequest.KEY, pb.RangeRequest.VALUE
DEPTH_MAX: Final = 2
SPAN: Final = 30
"""How far back most revisions are that are asked for."""

TOO_LONG_S: Final = 9_000_000_001
INT64: Final = (-(1 << 63), (1 << 63) - 1)


class RandomCalls:
    """The calls of a seed."""

    def __init__(self, random: Random, revision: int) -> None:
        self.random = random
        self.first = revision
        self.revision = revision
        """About the current one: it cannot be known before the calls were made."""
        self._values = 0

    def chance(self, probability: float) -> bool:
        """Say yes with this probability."""
        return self.random.random() < probability

    def next(self) -> Any:
        """Make up a request."""
        make = self.random.choices(
            (
                lambda: pb.PutRequest(**self._put()),
                lambda: pb.RangeRequest(**self._range()),
                lambda: pb.DeleteRangeRequest(**self._delete()),
                lambda: pb.TxnRequest(**self._txn()),
                self._lease,
                self.compaction,
            ),
            (30, 25, 8, 30, 14, 2),
        )[0]
        request = make()
        if isinstance(request, pb.PutRequest | pb.TxnRequest | pb.DeleteRangeRequest):
            self.revision += self.chance(0.7)
        return request

    def compaction(self) -> pb.CompactionRequest:
        """Make up a compaction; of ten about seven can be done."""
        revision = self.past() if self.chance(0.9) else self.random.choice((0, -1, 1 << 40))
        return pb.CompactionRequest(revision=revision, physical=self.chance(0.5))

    def past(self) -> int:
        """Make up a revision, most of them of this run and in the past."""
        return self.random.randint(max(self.first - 2, self.revision - SPAN), self.revision + 1)

    # Parts of requests.

    def key(self) -> bytes:
        """Choose a key; rarely one that is empty."""
        return b"" if self.chance(0.005) else self.random.choice(KEYS)

    def range_end(self, *, may_be_open: bool = True) -> bytes:
        """Choose an end: mostly none, else behind or before the key, or none at all."""
        ends = [*KEYS, b"k:", b"k"] + ([FROM_KEY] * 2 if may_be_open else [])
        return b"" if self.chance(0.4) else self.random.choice(ends)

    def value(self) -> bytes:
        """Make up a value that no other put has: etcd has no order among equals."""
        self._values += 1
        return b"%d-%d" % (self.random.randrange(10), self._values)

    def _put(self, *, may_keep: bool = True) -> dict[str, Any]:
        put: dict[str, Any] = {"key": self.key(), "prev_kv": self.chance(0.4)}
        keeps_value = may_keep and self.chance(0.1)
        keeps_lease = may_keep and self.chance(0.1)
        if not keeps_value or self.chance(0.1):
            put["value"] = self.value()
        if self.chance(0.3) and (not keeps_lease or self.chance(0.1)):
            put["lease"] = self.lease()
        if self.chance(0.01):
            put["lease"] = UNKNOWN_LEASE
        return put | {"ignore_value": keeps_value, "ignore_lease": keeps_lease}

    def _delete(self, *, may_be_open: bool = True) -> dict[str, Any]:
        end = self.range_end(may_be_open=may_be_open)
        if end == FROM_KEY and self.chance(0.7):  # it takes most of what there is
            end = b""
        return {"key": self.key(), "range_end": end, "prev_kv": self.chance(0.5)}

    def _range(self) -> dict[str, Any]:
        asked: dict[str, Any] = {"key": self.key(), "range_end": self.range_end()}
        if self.chance(0.4):
            asked["revision"] = self.past()
        elif self.chance(0.02):
            asked["revision"] = self.random.choice((-1, 1, 1 << 40))
        if self.chance(0.5):
            asked["sort_order"] = self.random.choice((0, 1, 1, 2, 2, 3))
            asked["sort_target"] = self.random.randrange(5)
        target = asked.get("sort_target", 0)
        if self.chance(0.4) and target in (KEY, VALUE):
            asked["limit"] = self.random.choice((1, 2, 3, 4, -1))
        for name in ("min_mod", "max_mod", "min_create", "max_create"):
            if self.chance(0.08):
                asked[f"{name}_revision"] = self.past()
        for name in ("keys_only", "count_only", "serializable"):
            asked[name] = self.chance(0.1)
        return asked

    def _compare(self) -> pb.Compare:
        operands: dict[str, Any] = {
            "version": self.random.randrange(4),
            "create_revision": self.past(),
            "mod_revision": self.past(),
            "value": b"%d" % self.random.randrange(10),
            "lease": self.random.choice((0, *LEASES)),
        }
        name = self.random.choice(list(operands))
        target: Any = list(operands).index(name) if self.chance(0.95) else self.random.randrange(6)
        result: Any = 9 if self.chance(0.02) else self.random.randrange(4)
        end = self.range_end() if self.chance(0.3) else b""
        operand: dict[str, Any] = {name: operands[name]} if self.chance(0.95) else {}
        return pb.Compare(key=self.key(), range_end=end, target=target, result=result, **operand)

    def _txn(self, depth: int = 0, *, may_keep: bool | None = None) -> dict[str, Any]:
        if may_keep is None:
            may_keep = self.chance(0.5)
        return {
            "compare": [self._compare() for _ in range(self.random.choice((0, 1, 1, 2)))],
            "success": self._steps(depth, may_keep=may_keep),
            "failure": self._steps(depth, may_keep=may_keep),
        }

    def _steps(self, depth: int, *, may_keep: bool) -> list[pb.RequestOp]:
        count = self.random.choice((0, 1, 1, 2, 2, 3, 4))
        return [self._step(depth, may_keep=may_keep) for _ in range(count)]

    def _step(self, depth: int, *, may_keep: bool) -> pb.RequestOp:
        kind = self.random.choices(("put", "range", "delete", "txn", "none"), (9, 8, 4, 4, 0.1))[0]
        if kind == "put":
            return put_op(**self._put(may_keep=may_keep))
        if kind == "delete":
            return delete_op(**self._delete(may_be_open=not may_keep))
        if kind == "txn" and depth < DEPTH_MAX:
            return txn_op(**self._txn(depth + 1, may_keep=may_keep))
        return pb.RequestOp() if kind == "none" else range_op(**self._range())

    def lease(self) -> int:
        """Choose a lease, most often one of the first two, so that they have keys."""
        return self.random.choice(LEASES if self.chance(0.4) else LEASES[:2])

    def grant(self, lease: int) -> pb.LeaseGrantRequest:
        """Ask for a lease; each has a term of its own, so that the order of a list is defined."""
        return pb.LeaseGrantRequest(ID=lease, TTL=1000 * (2 + LEASES.index(lease)))

    def _lease(self) -> Any:
        lease = self.lease()
        kinds = ("grant", "odd grant", "revoke", "time", "list")
        kind = self.random.choices(kinds, (10, 2, 5, 4, 2))[0]
        if kind == "grant":
            return self.grant(lease)
        if kind == "odd grant":
            return self._odd_grant()
        if self.chance(0.05):
            lease = self.random.choice((0, UNKNOWN_LEASE))
        if kind == "revoke":
            return pb.LeaseRevokeRequest(ID=lease)
        if kind == "time":
            return pb.LeaseTimeToLiveRequest(ID=lease, keys=self.chance(0.7))
        return pb.LeaseLeasesRequest()

    def _odd_grant(self) -> pb.LeaseGrantRequest:
        """Ask for a term that is not given as it is; one that may end has an id nobody knows."""
        lease = self.random.choice((0, *LEASES))
        if self.chance(0.5):
            return pb.LeaseGrantRequest(ID=lease, TTL=self.random.choice((TOO_LONG_S, INT64[1])))
        return pb.LeaseGrantRequest(TTL=self.random.choice((INT64[0], -1, 0, 1, 2, TOO_LONG_S - 1)))

    def full_txn(self) -> pb.TxnRequest:
        """Make up a transaction with as many operations as may be, or one too many."""
        counts = [self.random.choice((0, 1, 127, 128, 129)) for _ in range(4)]
        compares = [pb.Compare(key=KEYS[0]) for _ in range(counts[0])]
        success, failure, inner = (
            [range_op(self.random.choice(KEYS), count_only=True) for _ in range(count)]
            for count in counts[1:]
        )
        success[:1] = [
            put_op(KEYS[1], self.value()),
            txn_op(success=inner[: self.random.choice((1, 128))]),
        ]
        return pb.TxnRequest(compare=compares, success=success, failure=failure)
