"""Command lines of clients: what is wrong with them is one line, and little is imported for it."""

import pytest

from leasehold.cli import COMMANDS, main, parser_for

USAGE_ERROR, COMMAND_NOT_FOUND = 2, 127
SET = "0123456789abcdef0123456789abcdef"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Give a command that is refused before anything is sent; return its one line."""
    assert main(arguments) == USAGE_ERROR
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("kv gett a", "leasehold kv: unknown command 'gett': did you mean get? "),
        ("kvv", "leasehold: unknown command 'kvv': did you mean kv? "),
        ("--json kv get a", "leasehold: unknown option --json: write it after the command"),
        ("lease --endpoint a:1 list", "leasehold lease: unknown option --endpoint: write it"),
        ("kv get a --endpoints b:1", "--endpoints: this is an option of etcdctl; use --endpoint "),
        (
            "registry register a b --check tcp",
            "check must be tcp://HOST:PORT, such as tcp://127.0.0.1:5432, got 'tcp' (see ",
        ),
        (
            "registry register a b --check tcp://db",
            "tcp://127.0.0.1:5432, got 'tcp://db': 'db' has no port: write HOST:PORT, such as ",
        ),
        (
            "registry register a b --check tcp://db:99999",
            "got 'tcp://db:99999': 'db:99999' is not HOST:PORT with a port of 0 to 65535, such as ",
        ),
        ("registry register a b --check tcp:unix:/x", "such as tcp://127.0.0.1:5432, got 'tcp:uni"),
        (
            "registry register a b --check http://db:99999/",
            "url must have a port of 0 to 65535, got 'http://db:99999/' (see `leasehold ",
        ),
        (
            "registry register a b --check grpc",
            "check must be grpc://HOST:PORT[/SERVICE], such as grpc://127.0.0.1:50051, got 'grpc' ",
        ),
        (
            "registry register a b --check grpcs://db/x",
            "grpcs://127.0.0.1:50051, got 'grpcs://db/x': 'db' has no port: write HOST:PORT, such",
        ),
        ("registry register a b --endpoints c:1", "this is an option of etcdctl; use --endpoint "),
        ("kv get a -w json", "unknown option -w: this is an option of etcdctl; use --json "),
        ("kv get a --command-timeout=1s", "this is an option of etcdctl; use --timeout "),
        ("kv get a --name b", "leasehold kv get: unknown option --name (see `leasehold "),
        ("kv get a --lmit 1", "unknown option --lmit: did you mean --limit? "),
        ("kv get", "the following arguments are required: KEY "),
        ("kv get --lmit", "unknown option --lmit: did you mean --limit? "),
        ("kv put a --x", "unknown option --x: if it is a value, write -- before the key "),
        ("kv put a b c", "leasehold kv put: unexpected argument 'c' "),
        ("kv get a --keys-only --print-value-only", "not allowed with argument --keys-only "),
        ("kv put a b --lease 1 --keep-lease", "not allowed with argument --lease "),
        ("lease grant 5 --keep --print-id-only", "not allowed with argument --keep "),
        ("lease grant x", "argument TTL: 'x' is not a duration: write seconds, "),
        ("lease grant 5 --no-revoke", "leasehold: --no-revoke requires --keep: "),
        ("lease keep", "the following arguments are required: ID "),
        ("lease revoke 1 zz", "argument ID: 'zz' is not a lease id: write it as it is printed, "),
        ("lease revoke 1 --json zz", "argument ID: 'zz' is not a lease id: "),
        ("lease show 1 2", "leasehold lease show: unexpected argument '2' "),
        (
            "lease watch --prefix a --renewals",
            "leasehold: --prefix selects only ends of leases and ",
        ),
        (
            "kv get a --rev 0",
            "argument --rev: must be a whole number of at least 1, such as 12; got '0' ",
        ),
        ("kv get a --endpoint host", "argument --endpoint: 'host' has no port: write HOST:PORT, "),
        (
            "kv get a --timeout 0",
            "argument --timeout: duration must be more than 0 and at most 9000000000 seconds, g",
        ),
        ("kv get a --cacert /no/where", "leasehold: /no/where: the authorities' certificates ca"),
        ("lease grant 1e30", "argument TTL: '1e30' is not a duration: write seconds, "),
        ("lease grant 999999d", "more than 0 and at most 9000000000 seconds, got '999999d': "),
        (
            "permit grant a b --rights r",
            "unknown option --rights: write RIGHT as an argument, without",
        ),
        ("lease grant --ttl 5", "unknown option --ttl: write TTL as an argument, without --ttl "),
        ("kv get a --key /no/where", "--key was given without --cert: give both or neither"),
        ("kv get a --cert /no/where", "--cert was given without --key: give bo"),
        (
            "kv get a --cacert=",
            "argument --cacert: file name must not be empty: write one, such as ./ca.pem ",
        ),
        (
            "lease grant 5 --holder=",
            "argument --holder: holder must not be empty: write one, such as anna",
        ),
        ("top --every 1ms", "argument --every: '1ms' is too short: write 100ms or more, such as 1"),
        ("top --once --count 2", "argument --count: not allowed with argument --once "),
        ("top now", "leasehold top: unexpected argument 'now' "),
        ("permit grant anna hall in", "one of the arguments --ttl --lease is required "),
        ("permit grant anna hall --ttl 5", "the following arguments are required: RIGHT "),
        ("permit grant a b c --ttl 5 --lease 1", "not allowed with argument --ttl "),
        ("permit grant a b c --ttl=", "argument --ttl: '' is not a duration: write seconds, "),
        ("permit check anna hall", "the following arguments are required: RIGHT "),
        ("permit check anna hall in out", "leasehold permit check: unexpected argument 'out'"),
        ("permit revoke anna", "the following arguments are required: RESOURCE "),
        (
            "permit list --subject=",
            "argument --subject: subject must not be empty: write one, such as ",
        ),
        (
            "permit list --subject \udcff",
            "argument --subject: subject must be valid UTF-8, got '\\udcff'",
        ),
        (
            "lock a --ttl 3 --grace 3s -- ls",
            "leasehold: --grace 3s is more than a third of --ttl 3s: use --ttl 9s or --grace 1s",
        ),
        (
            "lock a --grace 5",
            "--grace 5s is more than a third of --ttl 10s: use --ttl 15s or --grace 3s333ms",
        ),
        (
            "lock a --ttl 2ms --grace 1ms",
            "--grace 1ms is more than a third of --ttl 2ms: use --ttl 3ms or --grace 0s",
        ),
        (
            "elect a b --ttl 3 --grace 3 -- ls",
            "leasehold: --grace 3s is more than a third of --ttl 3s: use --ttl 9s or --grace 1s",
        ),
        ("renewal list zz", "argument SET: 'zz' is not the id of a renewal set: write its 32 hexa"),
        ("renewal lst", "leasehold renewal: unknown command 'lst': did you mean list? "),
        ("renewal create --ttl 0", "argument --ttl: duration must be more than 0 and at most "),
        ("renewal create --ttl never", "'never' is not a duration: write seconds, such as 30 or "),
        (f"renewal add {SET} 7a11", "the following arguments are required: --for "),
        (f"renewal add {SET} --for 8h", "no lease was given: write LEASE, or --cookie, or --mai"),
        (f"renewal add {SET} 7a --for 8x", "7d, or forever (see `leasehold renewal add --help`)"),
        (f"renewal add {SET} zz --for 8h", "argument LEASE: 'zz' is not a lease id: write it as"),
        (
            f"renewal add {SET} 7a --cookie A1 --grantor desks --for 8h",
            "leasehold: LEASE was given together with --cookie: give only one of them",
        ),
        (
            f"renewal add {SET} --cookie A1 --for 8h",
            "leasehold: --cookie requires --grantor: give the name of the landlord",
        ),
        (
            f"renewal add {SET} 7a --etcd --at 127.0.0.1:1 --for 8h",
            "leasehold: --etcd requires --grantor: give the cluster id, or omit --etcd",
        ),
        (
            f"renewal add {SET} --mailbox {SET} --at 127.0.0.1:1 --for 8h",
            "leasehold: --mailbox is for a lease of this server: omit --at and --grantor",
        ),
        (f"renewal add {SET} 7a --at host --for 8h", "argument --at: 'host' has no port: write H"),
        (f"renewal remove {SET}", "no lease was given: write LEASE, or --cookie, or --mailbox"),
        ("renewal destroy", "the following arguments are required: SET "),
        (f"renewal watch {SET} ls", "unexpected argument 'ls': write -- before a command "),
        (f"renewal watch {SET} --warn 10x", "argument --warn: '10x' is not a duration: "),
        ("discovery register", "no registrar is wanted: write --group, --all-groups or --locator"),
        ("discovery register --group a --all-groups", "not allowed with argument --group "),
        (
            "discovery register --locator 10.0.0.1",
            "argument --locator: '10.0.0.1' is not a locator: write leasehold://HOST or ",
        ),
        ("discovery register --group a --mailbox zz", "'zz' is not the id of a mailbox: write its"),
        ("discovery register --group a --duration x", "'x' is not a duration: write seconds, suc"),
        ("discovery list zz", "argument ID: 'zz' is not the id of a discovery registration: write"),
        (f"discovery groups {SET} --all --none", "--none: not allowed with argument --all "),
        (f"discovery groups {SET} --add a --set b", "--set: not allowed with argument --add "),
        (f"discovery groups {SET} a", "leasehold discovery groups: unexpected argument 'a' "),
        (f"discovery locators {SET} --add leasehold://a:0", "'leasehold://a:0' is not a locator: "),
        (f"discovery locators {SET} --all", "unknown option --all"),
        (f"discovery discard {SET}", "the following arguments are required: REGISTRAR "),
        (f"discovery watch {SET} ls", "unexpected argument 'ls': write -- before a command "),
        ("discovery destroy", "the following arguments are required: ID "),
        (
            f"renewal add {SET} --mailbox {SET} --discovery {SET} --for 8h",
            "--mailbox was given together with --discovery: give only one of them",
        ),
        (
            f"renewal add {SET} --discovery {SET} --at 127.0.0.1:1 --for 8h",
            "--discovery is for a lease of this server: omit --at and --grantor",
        ),
        (f"renewal watch {SET} --count 0", "argument --count: must be a whole number of at least"),
        ("events watch zz", "argument MAILBOX: 'zz' is not the id of a mailbox: write its 32 hexa"),
        ("events watch", "the following arguments are required: MAILBOX "),
        ("events create --ttl -1", "argument --ttl: "),
        ("completion tcsh", "leasehold completion: unknown command 'tcsh': "),
    ],
)
def test_what_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    told = refused(capsys, *line.split())
    assert said in told
    assert told.startswith("leasehold")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("permit", "grant", "a", "b", ""),
            "argument RIGHT: right must not be empty: write one, such ",
        ),
        (
            ("permit", "grant", "a", "", "c"),
            "argument RESOURCE: resource must not be empty: write one",
        ),
        (("kv", "get", "a", "--endpoint", "a:1 b:2"), "separate addresses with commas, such as a:"),
    ],
)
def test_so_is_what_is_wrong_with_empty_arguments_and_those_with_spaces(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused(capsys, *arguments)


def test_endpoints_with_a_space_in_the_variable_are_refused_with_its_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEHOLD_ENDPOINTS", "a:1 b:2")
    said = refused(capsys, "kv", "get", "a")
    assert "LEASEHOLD_ENDPOINTS: 'a:1 b:2' has a space" in said
    assert said.endswith("such as a:1,b:2")


@pytest.mark.parametrize(
    "group", ["lease", "kv", "permit", "renewal", "events", "discovery", "completion"]
)
def test_a_group_alone_helps(capsys: pytest.CaptureFixture[str], group: str) -> None:
    assert main([group]) == USAGE_ERROR
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"usage: leasehold {group} [-h] COMMAND ...")


@pytest.mark.parametrize("group", ["renewal", "events", "discovery"])
def test_a_command_that_does_not_exist_is_reported_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str], group: str
) -> None:
    assert main([group, "watch", SET, "--", "no-such-command"]) == COMMAND_NOT_FOUND
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "leasehold: 'no-such-command' cannot be run: it was not found\n"


def test_an_argument_that_takes_any_number_goes_on_after_an_option() -> None:
    arguments = parser_for().parse_args(["lease", "renew", "1", "--json", "2", "3"])
    assert arguments.ids == [1, 2, 3]
    arguments = parser_for().parse_args(["lease", "watch", "--json", "2", "3"])
    assert arguments.ids == [2, 3]
    arguments = parser_for().parse_args(["lease", "watch"])
    assert arguments.ids == []


def test_only_the_command_that_is_named_is_looked_at() -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            parser_for([name]).parse_args([next(each for each in COMMANDS if each != name)])
