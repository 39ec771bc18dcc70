"""Whatever is typed, a command for clients ends with a code that means something, and in words."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leasehold.cli.parser import MEANINGS, NOT_MET, OK
from tests.support.client_command import Command

NOBODY = Command("127.0.0.1:1")

_COMMANDS = st.sampled_from(
    [
        *([f"lease {name}" for name in ("grant", "renew", "revoke", "show", "list", "watch")]),
        *([f"kv {name}" for name in ("get", "put", "del", "watch", "txn")]),
        *([f"permit {name}" for name in ("grant", "check", "revoke", "list")]),
        *("lease", "kv", "permit", "status", "completion", "completion fish", "", "lease keep"),
        *([f"discovery {name}" for name in ("register", "list", "groups", "locators", "discard")]),
        *("top", "lock", "lock a", "elect a", "discovery"),
    ]
)
_FLAGS = st.sampled_from(
    [
        *(
            "--json",
            "--prefix",
            "--lease",
            "--keep",
            "--count",
            "--rev",
            "--if",
            "--then",
            "--else",
        ),
        *("--holder", "--timeout", "--endpoint", "--id", "--limit", "--cacert", "--start", "-h"),
        *("--ttl", "--by", "--subject", "--resource", "--print-id-only"),
        *("-x", "--", "-", "--json=1", "--no-revoke", "--keys-only", "--key"),
        *("--every", "--once", "--listen", "--wait", "--grace", "-q", "--token-env"),
        *("--denied-code", "--group", "--locator", "--add", "--set", "--none", "--handback"),
    ]
)
_TEXTS = st.sampled_from(
    [
        "",
        "0",
        "1",
        "-1",
        "7a11",
        "zz",
        "1m30s",
        "a exists",
        "put a b",
        "del '",
        "a:1",
        "=",
        "\udcff",
    ]
)
_ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(_COMMANDS, st.lists(_FLAGS | _TEXTS | _ANY, max_size=6), st.binary(max_size=30))
def test_no_line_ends_in_a_traceback(command: str, rest: list[str], stdin: bytes) -> None:
    said = NOBODY(*command.split(), *rest, stdin=stdin)
    assert said.code in set(MEANINGS) - {NOT_MET}, said
    assert "Traceback" not in said.err
    assert "internal error" not in said.err
    if said.code == OK:
        assert not said.err, said
    elif not said.err.startswith("usage: "):
        assert said.complaint.startswith("leasehold"), said
