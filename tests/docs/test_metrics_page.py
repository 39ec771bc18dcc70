"""The page on metrics names all of them, each with its kind, and nothing else."""

import asyncio
import re
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from leasehold.server.app import LeaseholdServer

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
OF_CLUSTER = "leasehold_engine_"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|", re.MULTILINE)


async def _shown(directory: Path) -> dict[str, str]:
    async with LeaseholdServer(directory) as server:
        port = await server.start("127.0.0.1", 0)
        text = await asyncio.to_thread(_get, f"http://127.0.0.1:{port}/metrics")
    families = text_string_to_metric_families(text)
    return {each.name: each.type for each in families}


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310  our own server
        text: str = answer.read().decode()
    return text


def test_the_page_names_all_metrics(tmp_path: Path) -> None:
    rows = ROW.findall(PAGE.read_text())
    assert len(rows) == len(dict(rows)), "one is there twice"
    # The parser takes `_total` from the names of counters, whether they have it or not.
    named = {
        name.removesuffix("_total") if kind == "counter" else name: kind for name, kind in rows
    }
    of_cluster = {name: kind for name, kind in named.items() if name.startswith(OF_CLUSTER)}
    assert len(of_cluster) == 3, "of the other form: tests/integration/test_cluster_server.py"
    assert named == asyncio.run(_shown(tmp_path)) | of_cluster
