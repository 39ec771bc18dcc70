"""The test suites that clients publish pass on our server wherever they pass on etcd."""

from pathlib import Path
from typing import Final

import pytest

from tests.clients.running import needs
from tests.clients.suites import Suite, outcomes
from tests.support.servers import RunningServer

SEVERAL_MEMBERS: Final = "needs a cluster of three, with members named by pifpaf"
NO_AUTHENTICATION: Final = "authentication is not part of the server yet"
SNAPSHOT: Final = "'snapshot', 'status'"  # of etcdctl, which cannot read a SQLite file
NOT_IN_DRIVER: Final = (  # what tooz cannot do with any etcd, such as leaders and shared locks
    "not implemented",
    "This driver is not distributed across hosts",
    "This driver is not based on timeout",
    "Etcd3Driver does not support str member_id",
)


def _url(server: RunningServer) -> str:
    return f"http://{server.endpoint}"


def _for_aetcd(server: RunningServer) -> dict[str, str]:
    return {"TEST_ETCD_HTTP_URL": _url(server)}


def _for_etcd3(server: RunningServer) -> dict[str, str]:
    return {"PYTHON_ETCD_HTTP_URL": _url(server), "TEST_ETCD_VERSION": "v3.5.1"}


def _for_etcd3gw(server: RunningServer) -> dict[str, str]:
    return {"TOOZ_TEST_HTTP_URL": _url(server), "TOOZ_TEST_ETCD_PORT": str(server.port)}


def _for_tooz(server: RunningServer) -> dict[str, str]:
    # One test waits for a dead member to go, which takes 30 s unless told otherwise.
    return {"TOOZ_TEST_URL": f"etcd3+http://{server.endpoint}?membership_timeout=4"}


AETCD: Final = Suite(
    environment="aetcd",
    parts=tuple(
        ("tests/integration", "--no-cov", "-k", words)
        for words in ("test_watch.py", "test_lock.py", "not test_watch.py and not test_lock.py")
    ),
    variables=_for_aetcd,
    tests=62,
    left_out={"tests/integration/test_auth.py::test_auth": NO_AUTHENTICATION},
    skips=("ETCD cluster was not run",),
    not_ours={"tests.integration.test_maintenance.test_snapshot": SNAPSHOT},
)

_ETCD3: Final = "tests/test_etcd3.py::TestEtcd3::test_"
ETCD3: Final = Suite(
    environment="etcd3",
    parts=tuple(
        ("tests", "-W", "ignore", "-k", words)
        for words in (
            "watch",
            "lock",
            "TestEtcd3 and (get or put or delete) and not (watch or lock)",
            "not watch and not lock and not (TestEtcd3 and (get or put or delete))",
        )
    ),
    variables=_for_etcd3,
    tests=78,
    left_out={
        f"{_ETCD3}get_key_serializable": SEVERAL_MEMBERS,
        f"{_ETCD3}get_prefix_serializable": SEVERAL_MEMBERS,
        f"{_ETCD3}member_list": SEVERAL_MEMBERS,
        "tests/test_etcd3.py::TestClient::test_user_pwd_auth": NO_AUTHENTICATION,
    },
    not_ours={"tests.test_etcd3.TestEtcd3.test_snapshot": SNAPSHOT},
    plugins=("for_etcd3",),
)

ETCD3GW: Final = Suite(
    environment="gateway",
    parts=(
        ("--pyargs", "etcd3gw.tests.test_etcd3gw", "-k", "watch"),
        ("--pyargs", "etcd3gw.tests.test_etcd3gw", "-k", "not watch"),
        ("--pyargs", "etcd3gw.tests.test_client"),
    ),
    variables=_for_etcd3gw,
    tests=39,
)

TOOZ: Final = Suite(
    environment="gateway",
    parts=(
        ("--pyargs", "tooz.tests.test_coordination", "-k", "TestAPI and group"),
        ("--pyargs", "tooz.tests.test_coordination", "-k", "TestAPI and not group"),
    ),
    variables=_for_tooz,
    tests=81,
    skips=NOT_IN_DRIVER,
)


SUITES: Final = {"aetcd": AETCD, "etcd3": ETCD3, "etcd3gw": ETCD3GW, "tooz": TOOZ}


@pytest.mark.parametrize("name", SUITES)
def test_what_passes_on_etcd_passes_on_ours(name: str, tmp_path: Path) -> None:
    suite = SUITES[name]
    needs(suite.environment)
    real, ours = outcomes(suite, tmp_path)
    assert len(real) == suite.tests
    assert {test: told for test, told in real.items() if told not in suite.expected} == {}
    different = {test: ours.get(test) for test in real if ours.get(test) != real[test]}
    for test, told in different.items():
        print(test, told, sep="\n")
    assert set(different) == set(suite.not_ours)
    assert all(suite.not_ours[test] in (told or "") for test, told in different.items())
    assert set(real) == set(ours)
