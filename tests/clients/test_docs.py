"""The examples of docs/clients.md are run, each in the environment of its client."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.clients.running import needs, run, run_python, tail
from tests.support.servers import leasehold_command, running
from tools import client_environments

PAGE: Final = Path(__file__).parents[2] / "docs" / "clients.md"
EXAMPLE: Final = re.compile(
    r"^## ([^\n]+)\n(?:(?!^## ).)*?^```(py|js)\n(.*?)^```\n\n```text\n(.*?)^```",
    re.DOTALL | re.MULTILINE,
)
ENVIRONMENTS: Final = {
    "aetcd": "aetcd",
    "etcd3": "etcd3",
    "etcd3gw": "gateway",
    "tooz": "gateway",
    "etcd3 for Node": "node",
}
EXAMPLES: Final = {title: rest for title, *rest in EXAMPLE.findall(PAGE.read_text())}


def test_each_client_with_an_environment_has_an_example() -> None:
    assert set(EXAMPLES) == set(ENVIRONMENTS)


@pytest.mark.parametrize("client", ENVIRONMENTS)
def test_an_example_prints_what_the_page_says(client: str, tmp_path: Path) -> None:
    needs(environment := ENVIRONMENTS[client])
    language, code, prints = EXAMPLES[client]
    with running(leasehold_command, tmp_path) as server:
        code = code.replace("2379", str(server.port))
        if language == "js":
            done = run(["node", "-e", code], {}, client_environments.directory_of(environment))
        else:
            done = run_python(environment, ["-W", "ignore", "-c", code], {}, tmp_path)
    assert done.returncode == 0, tail(done)
    assert done.stdout == prints
