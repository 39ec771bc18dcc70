"""Which transactions change a key twice: the fast check agrees with one that compares all pairs."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import DuplicateKey
from leasehold.keyspace.keyspace import FROM_KEY, covers
from leasehold.keyspace.operations import Delete, Put, Range, Step, Txn
from leasehold.keyspace.transaction_rules import check_overlaps, check_overlaps_steps
from tests.property.support import effort

KEYS = st.sampled_from([b"a", b"ab", b"b", b"bb", b"c", b"d"])
ENDS = st.one_of(st.just(b""), st.just(FROM_KEY), KEYS)
LEAVES = st.one_of(
    st.builds(Put, KEYS, st.just(b"")), st.builds(Delete, KEYS, ENDS), st.builds(Range, KEYS)
)
BRANCHES: st.SearchStrategy[list[Step]] = st.recursive(
    st.lists(LEAVES, max_size=4),
    lambda inner: st.lists(
        st.one_of(LEAVES, st.builds(Txn, st.just([]), inner, inner)), max_size=4
    ),
    max_leaves=12,
)


class Touched:
    """What a branch may put and delete, as etcd's `checkIntervals` collects it."""

    def __init__(self) -> None:
        self.put: set[bytes] = set()
        self.deleted: list[tuple[bytes, bytes]] = []

    def add_put(self, key: bytes, harmless: set[bytes]) -> None:
        if key in self.put and key not in harmless:
            raise DuplicateKey(key)
        if any(covers(start, end, key) for start, end in self.deleted):
            raise DuplicateKey(key)
        self.put.add(key)


def naive(branch: Sequence[Step]) -> Touched:
    """Compare each put with each put and delete, in the order in which etcd does."""
    touched = Touched()
    for step in branch:
        if isinstance(step, Delete) and step.end != FROM_KEY:
            touched.deleted.append((step.key, step.end))
    for step in branch:
        if isinstance(step, Txn):
            then, otherwise = naive(step.success), naive(step.failure)
            for key in then.put:
                touched.add_put(key, set())
            for key in otherwise.put:
                touched.add_put(key, then.put)
            touched.deleted += then.deleted + otherwise.deleted
    for step in branch:
        if isinstance(step, Put):
            touched.add_put(step.key, set())
    return touched


def is_refused(txn: Txn, *, in_steps: bool) -> bool:
    try:
        if in_steps:
            for _ in check_overlaps_steps(txn):
                pass
        else:
            check_overlaps(txn)
    except DuplicateKey:
        return True
    return False


@effort(300)
@given(success=BRANCHES, failure=BRANCHES)
def test_it_refuses_what_the_naive_check_refuses(success: list[Step], failure: list[Step]) -> None:
    txn = Txn([], success, failure)
    try:
        naive(success), naive(failure)
        expected = False
    except DuplicateKey:
        expected = True
    assert is_refused(txn, in_steps=False) == expected
    assert is_refused(txn, in_steps=True) == expected
