"""All sources together: which value counts, where it came from, and what is said of wrong ones."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from leasehold.basics.addresses import TcpAddress, UnixAddress
from leasehold.basics.durations import FOREVER
from leasehold.cli.settings.error_texts import OF_ETCD, OF_OTHERS, hint
from leasehold.cli.settings.options import BY_NAME, OPTIONS, Option
from leasehold.cli.settings.sources import (
    OF_OWN_DATA,
    Reading,
    directory_in_force,
    read_settings,
)
from leasehold.errors import StorageError
from leasehold.leases.policies import TermPolicy
from leasehold.server.settings import RemoteEndpoints, ServiceSettings, Settings, TlsFiles
from leasehold.store.housekeeping import AutoCompaction

FLAG, VARIABLE, FILE = "flag", "variable", "file"
SOURCES = [FLAG, VARIABLE, FILE]

RIGHT: dict[str, list[str]] = {
    "data-dir": ["./a", "./b", "memory:"],
    "quota": ["1GiB", "3GiB", "4000000"],
    "compaction-age": ["2h", "off", "10s"],
    "compaction-revisions": ["5", "off", "7"],
    "unhealthy-after": ["1s", "500s", "1m"],
    "engine": ["etcd://a:1", "etcd://b:2,c:3", "etcd://[::1]:4"],
    "engine-ca": ["a.ca", "b.ca", "c.ca"],
    "engine-cert": ["a.pem", "b.pem", "c.pem"],
    "engine-key": ["a.key", "b.key", "c.key"],
    "advertise": ["a:1", "https://b:2", "unix:/x"],
    "listen": ["127.0.0.1:1", "[::1]:2", "unix:/x"],
    "cert": ["a.pem", "b.pem", "c.pem"],
    "key": ["a.key", "b.key", "c.key"],
    "client-ca": ["a.ca", "b.ca", "c.ca"],
    "insecure": ["true", "false", "true"],
    "max-streams": ["1", "200", "1_000_000"],
    "cors": ["https://a.example", "http://b.example:81", "*"],
    "host-whitelist": ["a.example", "b", "*"],
    "gateway": ["true", "false", "true"],
    "min-ttl": ["1s", "3s", "1m"],
    "keys-per-lease": ["1", "2", "3"],
    "policy": ["a:min=1s", "b:max=1h", "c:default=2s"],
    "renew-at": ["a:1", "b", "*"],
    "callbacks": ["a:1", "b:2", "unix:/x"],
    "isolate-sets": ["true", "false", "true"],
    "max-sets": ["1", "2", "3"],
    "max-set-members": ["1", "2", "3"],
    "set-term-max": ["1h", "forever", "3h"],
    "set-term-default": ["1m", "2m", "3m"],
    "registry-term-max": ["1h", "forever", "3h"],
    "registry-term-default": ["1m", "2m", "3m"],
    "max-discoveries": ["1", "2", "3"],
    "discovery-term-max": ["1h", "forever", "3h"],
    "discovery-term-default": ["1m", "2m", "3m"],
    "discover-at": ["a:1", "b", "*"],
    "groups": ["a", "b,c", ",d"],
    "announcement-ttl": ["1s", "3s", "1m"],
    "mailbox-events": ["1", "2", "3"],
    "mailbox-bytes": ["1KiB", "2KiB", "3MiB"],
    "max-handback": ["0", "2KiB", "1MiB"],
    "max-lease-reference": ["1KiB", "2KiB", "1MiB"],
    "file-stores": ["/a", "/a,/b", "file:///c"],
    "files-interval": ["1s", "500ms", "1m"],
    "dns": ["127.0.0.1:8600", "[::1]:53", "10.0.0.1:0"],
    "dns-domain": ["a", "b.example.org", "c"],
    "log-level": ["debug", "warning", "error"],
    "log-format": ["json", "console", "json"],
}
"""Three values of each option, one for each source."""

NEED_OTHERS = (
    "cert",
    "key",
    "client-ca",
    "engine-ca",
    "engine-cert",
    "engine-key",
    "advertise",
)
"""Options that are refused without another one."""

WRONG: dict[str, list[str]] = {
    "data-dir": ["\0"],
    "quota": ["2 gigs", "-1", "0", "1KiB", "99999TiB"],
    "compaction-age": ["5", "never", "1ms"],
    "compaction-revisions": ["0", "-3", "some"],
    "unhealthy-after": ["5", "0s", "999ms", "25h"],
    "engine": ["a:1", "etcd://", "etcd://a", "etcd://a:1,a:1", "etcd://http://a:1", "http://a:1"],
    "engine-ca": ["\0"],
    "engine-cert": ["\0"],
    "engine-key": ["\0"],
    "advertise": ["2379", "a:1,b:2"],
    "listen": ["2379", "127.0.0.1", "127.0.0.1:65536", "::1:2379", "ftp://a:1", "unix:"],
    "cert": ["\0"],
    "key": ["\0"],
    "client-ca": ["\0"],
    "insecure": ["yes", "1"],
    "max-streams": ["0", "many", "1000001"],
    "cors": ["null", "a.example", "https://", "https://a/", "https://a:b", "https://a,https://b"],
    "host-whitelist": ["a:80", "a/b", "*.a.example", "a,b", ":"],
    "gateway": ["no", "0"],
    "min-ttl": ["2", "0s", "500ms", "1500ms"],
    "keys-per-lease": ["0", "many", "1000001"],
    "policy": ["a", "a:min=1", "a:most=1s", "a:min=2s,max=1s"],
    "renew-at": ["https://a:1", "a:1,b:2"],
    "callbacks": ["a:b", "*.example"],
    "isolate-sets": ["yes"],
    "max-sets": ["0", "10000001"],
    "max-set-members": ["0", "many"],
    "set-term-max": ["off", "5"],
    "set-term-default": ["never", "5"],
    "registry-term-max": ["off", "5"],
    "registry-term-default": ["never", "5"],
    "max-discoveries": ["0", "10000001"],
    "discovery-term-max": ["off", "5"],
    "discovery-term-default": ["never", "5"],
    "discover-at": ["https://a:1", "a:1,b:2"],
    "groups": ["x" * 257, f"a,{'y' * 257}"],
    "announcement-ttl": ["2", "0s", "500ms", "1500ms", "2d"],
    "mailbox-events": ["0", "-1"],
    "mailbox-bytes": ["5", "2GiB"],
    "max-handback": ["-1", "2MiB"],
    "max-lease-reference": ["5", "2MiB"],
    "file-stores": ["a", "/a,", "/a,/a", "nothing://a", "x" * 400],
    "files-interval": ["2", "0s", "10ms", "2h"],
    "dns": ["8600", "127.0.0.1", "localhost:53", "http://127.0.0.1:53", "unix:/x", "x" * 400],
    "dns-domain": [".", "a..b", "a b", "x" * 64, ".".join(["x" * 60] * 4)],
    "log-level": ["loud"],
    "log-format": ["xml"],
}

WRONG_IN_TOML: dict[str, list[str]] = {
    "data-dir": ["5", "true", '["./a"]', '""', "{ a = 1 }", "1979-05-27"],
    "quota": ["1.5", "true", '"2 gigs"', '["1GiB"]', "5"],
    "compaction-age": ["5", "false", '"5"'],
    "compaction-revisions": ["0", '"never"', "false", "1.0"],
    "unhealthy-after": ["5", "true", '"5"', '"0s"'],
    "engine": ["1", '""', '["etcd://a:1"]', '"a:1"'],
    "engine-ca": ["1", '""'],
    "engine-cert": ["1", '""'],
    "engine-key": ["1", '""'],
    "advertise": ["2379", '["a:1"]', '"a"'],
    "listen": ["2379", "[]", "[2379]", '["127.0.0.1"]', '["127.0.0.1:1", "127.0.0.1:1"]'],
    "cert": ["1", '""'],
    "key": ["1", '""'],
    "client-ca": ["1", '""'],
    "insecure": ["1", '"true"'],
    "max-streams": ['"5"', "0", "true", "1.5"],
    "cors": ["1", "[]", '["null"]', '["http://a", "http://a:80"]', "true"],
    "host-whitelist": ["1", "[]", '["a:1"]', '["a", "A."]', "true"],
    "gateway": ["1", '"true"'],
    "min-ttl": ["2", '"2"'],
    "keys-per-lease": ['"5"', "0", "true", "1.5"],
    "policy": ['"a:min=1s"', "5", "{ a = 5 }", "{ a = { min = 1 } }", "{ a = { mini = '1s' } }",
               "{ a = { min = '1' } }", "{ a = { min = '2s', max = '1s' } }", "{ 'a b' = {} }"],
    "renew-at": ["1", "[]", '["a:b"]', '["a:1", "a:1"]'],
    "callbacks": ["1", "[]", '["a:b"]'],
    "isolate-sets": ["1", '"true"'],
    "max-sets": ['"5"', "0"],
    "max-set-members": ['"5"', "0"],
    "set-term-max": ["5", '"off"'],
    "set-term-default": ["5", '"off"'],
    "registry-term-max": ["5", '"off"'],
    "registry-term-default": ["5", '"off"'],
    "max-discoveries": ['"5"', "0"],
    "discovery-term-max": ["5", '"off"'],
    "discovery-term-default": ["5", '"off"'],
    "discover-at": ["1", "[]", '["a:b"]'],
    "groups": ["1", '["a"]'],
    "announcement-ttl": ["2", '"2"'],
    "mailbox-events": ['"5"', "0"],
    "mailbox-bytes": ["5", "true"],
    "max-handback": ["-1", "true"],
    "max-lease-reference": ["5", "true"],
    "file-stores": ["1", '["/a"]', '""'],
    "files-interval": ["2", '"2"'],
    "dns": ["53", '["127.0.0.1:53"]', '"localhost:53"'],
    "dns-domain": ["1", '""', '"a/b"'],
    "log-level": ["1", '"loud"'],
    "log-format": ["1", '"xml"'],
}  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work where no file is by chance."""
    monkeypatch.chdir(tmp_path)


def read(
    flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None, toml: str = ""
) -> Reading:
    if toml:
        Path("leasehold.toml").write_text(toml)
    return read_settings(flags or {}, environ or {})


def toml(option: Option, text: str) -> str:
    if option.name == "policy":
        name, _, terms = text.partition(":")
        table = "\n".join(f'{k} = "{v}"' for k, v in (t.split("=") for t in terms.split(",")))
        return f"[policy.{name}]\n{table}\n"
    return f"{option.name} = {text if option.kind.is_bare and text != 'off' else repr(text)}\n"


def given(option: Option, sources: dict[str, str]) -> Reading:
    flags: dict[str, Any] = {}
    if FLAG in sources:
        flags[option.name] = [sources[FLAG]] if option.kind.is_list else sources[FLAG]
    environ = {option.variable: sources[VARIABLE]} if VARIABLE in sources else {}
    return read(flags, environ, toml(option, sources[FILE]) if FILE in sources else "")


def test_nothing_said_is_what_a_server_has_by_itself() -> None:
    reading = read()
    assert reading.settings == Settings()
    assert {given.where for given in reading.values.values()} == {"default"}
    assert not reading.mistakes
    assert not reading.warnings


def test_the_tables_of_this_test_have_every_option() -> None:
    assert RIGHT.keys() == WRONG.keys() == WRONG_IN_TOML.keys() == BY_NAME.keys()


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_flags_count_before_variables_and_those_before_the_file(option: Option) -> None:
    texts = dict(zip(SOURCES, RIGHT[option.name], strict=True))
    places = {FLAG: option.flag, VARIABLE: option.variable, FILE: "leasehold.toml:1"}
    for first in range(len(SOURCES)):
        left = SOURCES[first:]
        reading = given(option, {source: texts[source] for source in left})
        value = option.kind.parse(texts[left[0]])
        assert reading.values[option.name].where == places[left[0]]
        assert reading.values[option.name].value == ((value,) if option.kind.is_list else value)
        assert all(mistake.name in NEED_OTHERS for mistake in reading.mistakes)


@pytest.mark.parametrize(
    ("option", "text"), [(BY_NAME[name], text) for name, texts in WRONG.items() for text in texts]
)
@pytest.mark.parametrize("source", [FLAG, VARIABLE])
def test_a_wrong_value_is_one_line_with_its_place_and_the_right_form(
    option: Option, text: str, source: str
) -> None:
    (mistake,) = given(option, {source: text}).mistakes
    assert mistake.text.startswith(f"{option.flag if source == FLAG else option.variable}: ")
    assert "\n" not in mistake.text
    assert ": write " in mistake.text or "such as" in mistake.text
    assert mistake.name == option.name


@pytest.mark.parametrize(
    ("option", "literal"),
    [(BY_NAME[name], literal) for name, literals in WRONG_IN_TOML.items() for literal in literals],
)
def test_a_wrong_value_of_a_file_is_one_line_with_its_line(option: Option, literal: str) -> None:
    reading = read(toml=f"# first\n\n{option.name} = {literal}\n")
    (mistake,) = reading.mistakes
    assert mistake.text.startswith("leasehold.toml:3: ")
    assert option.name in mistake.text
    assert "\n" not in mistake.text
    assert ": write " in mistake.text or "such as" in mistake.text


def test_everything_at_once() -> None:
    reading = read(
        {"config": "x.toml", "quota": "3GiB", "listen": ["127.0.0.1:0", "unix:./s"]},
        {"LEASEHOLD_POLICY": "a:max=1s b:min=2s", "LEASEHOLD_MIN_TTL": "5s"},
    )
    assert [mistake.text for mistake in reading.mistakes] == [
        "--config: x.toml cannot be read: No such file or directory; name a TOML file"
    ]
    Path("x.toml").write_text(
        'cert = "c"\nkey = "k"\nclient-ca = "a"\ncompaction-age = "off"\nquota = 5000000\n'
        'log-format = "json"\n[policy.z]\n'
    )
    reading = read(
        {"config": "x.toml", "quota": "3GiB", "listen": ["127.0.0.1:0", "unix:./s"]},
        {"LEASEHOLD_POLICY": "a:max=1s b:min=2s", "LEASEHOLD_MIN_TTL": "5s"},
    )
    assert not reading.mistakes
    assert reading.settings == Settings(
        listen=(TcpAddress("127.0.0.1", 0), UnixAddress("./s")),
        tls=TlsFiles(Path("c"), Path("k"), Path("a")),
        quota_bytes=3 * 1024**3,
        compaction=AutoCompaction(None, 1_000_000),
        min_ttl_s=5,
        policies={
            "a": TermPolicy(maximum_ms=1000, default_ms=1000),
            "b": TermPolicy(minimum_ms=2000),
        },
        log_format="json",
    )
    assert reading.values["client-ca"].where == "x.toml:3"
    assert reading.values["policy"].where == "LEASEHOLD_POLICY"


def test_an_engine_with_its_files_and_the_settings_of_services() -> None:
    reading = read(
        {"engine": "etcd://a:1,b:2", "advertise": "c:3", "renew-at": ["d:4", "e:5"]},
        {"LEASEHOLD_SET_TERM_MAX": "forever", "LEASEHOLD_ISOLATE_SETS": "true"},
        'engine-ca = "ca"\nengine-cert = "c"\nengine-key = "k"\nmailbox-bytes = "1MiB"\n'
        '[credentials.lab]\nendpoints = ["d:4"]\nca = "lab.pem"\n',
    )
    assert not reading.mistakes
    assert reading.settings == Settings(
        engine=RemoteEndpoints(("a:1", "b:2"), Path("ca"), Path("c"), Path("k")),
        advertise=TcpAddress("c", 3),
        services=ServiceSettings(
            renew_at=("d:4", "e:5"),
            isolate_sets=True,
            set_maximum=FOREVER,
            mailbox_bytes=1024**2,
            credentials={"lab": RemoteEndpoints(("d:4",), Path("lab.pem"))},
        ),
    )


@pytest.mark.parametrize("name", OF_OWN_DATA)
def test_settings_of_own_data_are_refused_with_an_engine(name: str) -> None:
    option = BY_NAME[name]
    for source in SOURCES:
        reading = given(option, {source: RIGHT[name][0]})
        assert not reading.mistakes
    environ = {option.variable: RIGHT[name][0]}
    Path("leasehold.toml").unlink()
    (mistake,) = read({"engine": "etcd://a:1"}, environ).mistakes
    assert mistake.text == (
        f"{option.variable}: {name} cannot be combined with engine (--engine): the etcd cluster "
        f"has the data; omit {name} or engine"
    )
    assert mistake.name == name


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({"engine-ca": "x"}, "engine-ca requires --engine URL as well"),
        ({"advertise": "a:1"}, "advertise requires --engine URL as well"),
        (
            {"engine": "etcd://a:1", "engine-cert": "x"},
            "engine-cert requires --engine-key FILE and --engine-ca FILE as well",
        ),
        (
            {"engine": "etcd://a:1", "engine-key": "x", "engine-cert": "y"},
            "engine-cert requires --engine-ca FILE as well",
        ),
        (
            {"set-term-max": "1m"},
            (
                "set-term-default is 1h and set-term-max is 1m: write a default that is at most "
                "the maximum"
            ),
        ),
        (
            {"set-term-default": "forever"},
            (
                "set-term-default is forever and set-term-max is 2h: write a default that is at "
                "most the maximum"
            ),
        ),
        (
            {"registry-term-max": "30s"},
            (
                "registry-term-default is 1m and registry-term-max is 30s: write a default that "
                "is at most the maximum"
            ),
        ),
    ],
)
def test_settings_that_need_others_are_refused_without(flags: dict[str, Any], wanted: str) -> None:
    (mistake,) = read(flags).mistakes
    where, _, text = mistake.text.partition(": ")
    assert text == wanted
    assert where.startswith("--")


@pytest.mark.parametrize(
    "table",
    [
        "5",
        "{ a = 5 }",
        "{ a = {} }",
        "{ a = { endpoints = 'b:1', ca = 'x' } }",
        "{ a = { endpoints = ['b'], ca = 'x' } }",
        "{ a = { endpoints = ['b:1'] } }",
        "{ a = { endpoints = ['b:1'], ca = 5 } }",
        "{ a = { endpoints = ['b:1'], ca = 'x', cert = 'y' } }",
        "{ a = { endpoints = ['b:1'], ca = 'x', secret = 'y' } }",
        "{ 'a b' = { endpoints = ['b:1'], ca = 'x' } }",
    ],
)
def test_wrong_credentials_are_one_line_with_their_line(table: str) -> None:
    (mistake,) = read(toml=f"# first\ncredentials = {table}\n").mistakes
    assert mistake.text.startswith("leasehold.toml:2: ")
    assert ": write " in mistake.text
    assert mistake.name == "credentials"


def test_a_backup_is_refused_if_the_data_is_in_a_cluster() -> None:
    Path("leasehold.toml").write_text('engine = "etcd://a:1,b:2"\n')
    with pytest.raises(StorageError, match=r"leasehold.toml:1: the data is in .* at a:1, b:2"):
        directory_in_force(None, Namespace())
    assert directory_in_force(Path("x"), Namespace()) == Path("x")


def test_the_file_is_the_flags_or_the_variables_or_the_one_that_is_there() -> None:
    for number, name in enumerate(["leasehold.toml", "variable.toml", "flag.toml"], 1):
        Path(name).write_text(f"keys-per-lease = {number}")
    environ = {"LEASEHOLD_CONFIG": "variable.toml"}
    assert read().settings.keys_per_lease == 1
    assert read(environ=environ).settings.keys_per_lease == 2
    assert read({"config": "flag.toml"}, environ).settings.keys_per_lease == 3
    assert read(environ={"LEASEHOLD_CONFIG": ""}).settings.keys_per_lease == 1


def test_an_empty_variable_is_as_good_as_none() -> None:
    environ = dict.fromkeys((option.variable for option in OPTIONS), "")
    assert read(environ=environ).settings == Settings()


def test_all_mistakes_of_all_sources_are_told_together_in_the_order_of_the_file() -> None:
    reading = read(
        {"quota": "x"},
        {"LEASEHOLD_MIN_TTL": "1"},
        'quota = "y"\nlisen = "a"\n[policy.p]\nmin = "1"\nmax = 2\n',
    )
    places = [mistake.text.split(": ")[0] for mistake in reading.mistakes]
    assert places == [
        "--quota",
        "LEASEHOLD_MIN_TTL",
        *(f"leasehold.toml:{line}" for line in (1, 2, 4, 5)),
    ]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("lisen", "did you mean listen?"),
        ("min_ttl", "did you mean min-ttl?"),
        ("data_dir", "did you mean data-dir?"),
        ("quota-backend-bytes", "this is an option of etcd; use --quota"),
        ("zzz", "see `leasehold serve --help` for the list"),
        ("port", "write --listen HOST:PORT, such as 127.0.0.1:2379"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(key: str, meant: str) -> None:
    (mistake,) = read(toml=f"quota = '2GiB'\n{key} = 1\n").mistakes
    assert mistake.text == f"leasehold.toml:2: {key} is not a known setting: {meant}"


def test_an_unknown_variable_is_warned_of_with_the_nearest_one() -> None:
    reading = read(environ={"LEASEHOLD_QOTA": "1", "LEASEHOLD_ZZZ": "1", "OTHER": "1"})
    assert not reading.mistakes
    assert reading.warnings == [
        "LEASEHOLD_QOTA is set, but is not a setting of the server: did you mean LEASEHOLD_QUOTA?",
        "LEASEHOLD_ZZZ is set, but is not a setting of the server",
    ]


def test_what_kubernetes_sets_for_a_service_of_this_name_is_let_be() -> None:
    environ = {
        "LEASEHOLD_SERVICE_HOST": "10.0.0.1",
        "LEASEHOLD_SERVICE_PORT": "2379",
        "LEASEHOLD_SERVICE_PORT_GRPC": "2379",
        "LEASEHOLD_PORT": "tcp://10.0.0.1:2379",
        "LEASEHOLD_PORT_2379_TCP": "tcp://10.0.0.1:2379",
        "LEASEHOLD_PORT_2379_TCP_ADDR": "10.0.0.1",
        "LEASEHOLD_SEED": "7",
    }
    assert not read(environ=environ).warnings


def test_what_says_to_clients_where_servers_are_is_let_be() -> None:
    assert not read(environ={"LEASEHOLD_ENDPOINTS": "127.0.0.1:2379"}).warnings


@pytest.mark.parametrize(
    ("content", "place", "why"),
    [
        (b"quota = \n", "leasehold.toml:1: ", "not valid TOML"),
        (b"a = 1\nquota = 2GiB\n", "leasehold.toml:2: ", "not valid TOML"),
        (b"a = 1\n\nb = [\n", "leasehold.toml:3: ", "not valid TOML"),
        (b"quota = 1\nquota = 2\n", "leasehold.toml:2: ", "Cannot overwrite"),
        (b"a = 1\nb = '\xff'\n", "default: leasehold.toml ", "line 2 is not UTF-8"),
        (b"#" * 1_048_577, "default: leasehold.toml ", "more than 1,048,576 bytes"),
    ],
)
def test_a_file_that_is_not_toml_is_one_line(content: bytes, place: str, why: str) -> None:
    Path("leasehold.toml").write_bytes(content)
    (mistake,) = read().mistakes
    assert mistake.text.startswith(place)
    assert why in mistake.text
    assert "\n" not in mistake.text
    assert mistake.name is None


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1"])
def test_other_machines_are_served_with_tls_or_if_told_so_only(address: str) -> None:
    (mistake,) = read({"listen": ["127.0.0.1:1", address]}).mistakes
    assert mistake.text == (
        f"--listen: {address} can be reached from other machines without TLS: add "
        "--cert FILE and --key FILE, listen on 127.0.0.1, or add --insecure"
    )
    assert not read({"listen": [address], "insecure": "true"}).mistakes
    assert not read({"listen": [address], "cert": "c", "key": "k"}).mistakes


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:a"]
)
def test_this_machine_is_served_without(address: str) -> None:
    assert not read({"listen": [address]}).mistakes


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["cert"], "cert requires --key FILE as well"),
        (["key"], "key requires --cert FILE as well"),
        (["client-ca"], "client-ca requires --cert FILE and --key FILE as well"),
        (["client-ca", "key"], "client-ca requires --cert FILE as well"),
    ],
)
def test_half_of_tls_is_refused(names: list[str], said: str) -> None:
    (mistake,) = read(dict.fromkeys(names, "x")).mistakes
    assert mistake.text == f"--{names[0]}: {said}"


def test_an_address_that_says_otherwise_is_refused() -> None:
    (mistake,) = read(toml='listen = "https://0.0.0.0:1"').mistakes
    assert mistake.text == (
        "leasehold.toml:1: https://0.0.0.0:1 needs TLS, but no certificate was given: "
        "add --cert FILE and --key FILE"
    )
    (mistake,) = read({"listen": ["http://127.0.0.1:1"], "cert": "c", "key": "k"}).mistakes
    assert "is without TLS, but a certificate was given" in mistake.text


def test_every_flag_of_etcd_that_is_known_leads_to_one_of_ours_or_says_why_not() -> None:
    for name, said in OF_ETCD.items():
        assert name not in BY_NAME
        for word in said.replace(",", "").split():
            if word.startswith("--"):
                assert word in {"--config", *(option.flag for option in OPTIONS)}
    assert hint("initial-cluster-token", BY_NAME) == (
        "this is an option of etcd; a server has no peers, so omit it"
    )


def test_what_many_programs_call_it_leads_to_one_of_ours() -> None:
    for name, said in OF_OTHERS.items():
        assert name not in BY_NAME
        assert said.split()[1] in {option.flag for option in OPTIONS}
        assert hint(name, BY_NAME) == said
        assert hint(name, ["force"]) is None, "this command has no such option"


def test_a_table_that_is_none_of_ours_is_told_to_be_left_out() -> None:
    (mistake,) = read(toml='[server]\nquota = "2GiB"\n').mistakes
    assert mistake.text.startswith(
        "leasehold.toml:1: server is not a known setting: write its keys without"
    )


def test_memory_without_its_colon_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = "--data-dir: memory names a directory: did you mean memory:, with a colon?"
    assert read({"data-dir": "memory"}).warnings == [said]
    assert read({"data-dir": "memory:"}).warnings == []
    (tmp_path / "memory").mkdir()
    assert read({"data-dir": "memory"}).warnings == [], "it is meant"


def test_a_port_alone_lacks_a_host() -> None:
    (mistake,) = read({"listen": ["12379"]}).mistakes
    assert mistake.text == (
        "--listen: '12379' has no host: write HOST:PORT, such as 127.0.0.1:12379"
    )
    (mistake,) = read({"listen": ["localhost"]}).mistakes
    assert "'localhost' has no port" in mistake.text
