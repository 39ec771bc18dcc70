"""What users do with real clients goes on our server as it goes on etcd, step by step."""

from pathlib import Path
from typing import Final

import pytest

from tests.clients.running import needs, pair, run, run_python, tail
from tests.support.servers import HOST, RunningServer
from tools import client_environments

PROGRAMS: Final = Path(__file__).parent / "programs"
NODE: Final = "node"
USERS: Final = {  # by client: its environment, the program, and what the program is told
    "etcd3": ("etcd3", "etcd3_family.py", ["etcd3"]),
    "etcd-sdk-python": ("aetcd", "etcd3_family.py", ["pyetcd"]),
    "tooz": ("gateway", "tooz_users.py", []),
    "patroni": ("gateway", "patroni_cluster.py", []),
    "etcd3 of Node": (NODE, "node_users.cjs", []),
}


@pytest.mark.parametrize("client", USERS)
def test_each_step_has_the_same_outcome(client: str, tmp_path: Path) -> None:
    environment, program, told = USERS[client]
    needs(environment)

    def steps(server: RunningServer) -> list[str]:
        arguments = [str(PROGRAMS / program), *told, HOST, str(server.port)]
        if environment == NODE:
            done = run(["node", *arguments], {}, client_environments.directory_of(NODE))
        else:
            done = run_python(environment, ["-W", "ignore", *arguments], {}, tmp_path)
        assert done.returncode == 0, f"{tail(done)}\n{server.log_tail()}"
        return done.stdout.splitlines()

    with pair(tmp_path) as servers:
        real, ours = servers.both(steps)
    assert real[-1] == "done"
    assert ours == real
