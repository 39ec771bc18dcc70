"""Names of permits: whatever they are, no subject and no resource reaches into another's."""

from hypothesis import given
from hypothesis import strategies as st

from leasehold.engine.interface import prefix_end
from leasehold.locks.permit import END, PREFIX, names_of, prefix_of, read_names

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
_NASTY = st.lists(
    st.sampled_from(["/", "%", "%2F", "\0", "a", "..", "é", "\U0010ffff", "+", " ", "%25"]),
    min_size=1,
    max_size=5,
).map("".join)
NAMES = _TEXTS | _NASTY


@given(NAMES, NAMES)
def test_names_are_read_as_they_were_written(subject: str, resource: str) -> None:
    names = names_of(subject, resource)
    assert read_names(names.key) == names
    assert PREFIX <= names.key < END
    assert names.key.startswith(prefix_of(subject))


@given(NAMES, NAMES, NAMES, NAMES)
def test_no_name_reaches_into_another(one: str, at: str, other: str, there: str) -> None:
    first, second = names_of(one, at), names_of(other, there)
    assert (first.key == second.key) == (first == second)
    prefix = prefix_of(other)
    assert (prefix <= first.key < prefix_end(prefix)) == (one == other)


@given(st.binary(max_size=30))
def test_any_key_is_read_or_is_none(tail: bytes) -> None:
    names = read_names(PREFIX + tail)
    assert names is None or names.key == PREFIX + tail
