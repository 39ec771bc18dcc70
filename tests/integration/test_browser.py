"""A real browser, and pages that try to use a server on this machine."""

import contextlib
import http.client
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any, Final

import pytest

from tests.support.serve_command import serving

WITHIN_S: Final = 120.0
PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * 127.0.0.1",
)
SITE: Final = "page.example"
"""Resolves to 127.0.0.1 in the browser, as every name does."""

PAGE: Final = """<!doctype html><body><iframe name="sink"></iframe><script>
const server = "http://127.0.0.1:%d";
const put = key => JSON.stringify({key: btoa(key), value: btoa("v")});
const tried = {};
async function attempt(name, make) {
  try {
    const answer = await make();
    tried[name] = [answer.type, answer.status, await answer.text()];
  } catch (error) { tried[name] = [String(error)]; }
}
(async () => {
  const post = (key, more) =>
    fetch(server + "/v3/kv/put", {method: "POST", body: put(key), ...more});
  await attempt("json", () => post("json", {headers: {"Content-Type": "application/json"}}));
  await attempt("simple", () => post("simple", {headers: {"Content-Type": "text/plain"}}));
  await attempt("opaque", () => post("opaque", {mode: "no-cors"}));
  await attempt("page", () => fetch(server + "/version"));
  navigator.sendBeacon(server + "/v3/kv/put", put("beacon"));
  const form = document.createElement("form");
  Object.assign(form, {method: "POST", action: server + "/v3/kv/put", target: "sink"});
  form.enctype = "text/plain";
  const input = document.createElement("input");
  input.name = put("form").slice(0, -1) + ',"x":"'; input.value = '"}';
  form.append(input); document.body.append(form);
  await new Promise(done => {
    document.querySelector("iframe").addEventListener("load", done); form.submit();
  });
  await attempt("last", () => post("last", {mode: "no-cors"}));
  await fetch("/report", {method: "POST", body: JSON.stringify(tried)});
})();
</script>"""


@pytest.fixture
def chromium() -> str:
    for name in PROGRAMS:
        if program := shutil.which(name):
            return program
    pytest.skip("needs Chromium (Debian's package chromium)")


class Site:
    """A web site with one page, which reports what it could do."""

    def __init__(self) -> None:
        reports: Queue[dict[str, Any]] = Queue()
        self._reports = reports
        self.page = ""
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = site.page.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                reports.put(json.loads(self.rfile.read(length)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as its base
                """Write nothing to the tests' output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://{SITE}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def report(self) -> dict[str, Any]:
        return self._reports.get(timeout=WITHIN_S)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextlib.contextmanager
def browsing(program: str, directory: Path, url: str) -> Iterator[None]:
    command = [program, *FLAGS, f"--user-data-dir={directory / 'profile'}", url]
    with subprocess.Popen(  # noqa: S603  a browser on a page of our own
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as browser:
        try:
            yield
        finally:
            browser.kill()


def seen(program: str, directory: Path, url: str) -> str:
    """Give what a user sees who types this address."""
    command = [program, *FLAGS, f"--user-data-dir={directory / 'profile'}", "--dump-dom", url]
    run = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=True)  # noqa: S603
    return run.stdout


def keys(port: int) -> set[str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    body = json.dumps({"key": "AA==", "range_end": "AA==", "keys_only": True})
    connection.request("POST", "/v3/kv/range", body)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return {each["key"] for each in answer.get("kvs", [])}


def visited(program: str, directory: Path, *flags: str, is_listed: bool) -> tuple[Any, set[str]]:
    """Have the page try everything; give what it reports, and the keys that it has written."""
    site = Site()
    with contextlib.closing(site):
        cors = ["--cors", site.origin] if is_listed else []
        with serving("--data-dir", "memory:", *cors, *flags) as server:
            site.page = PAGE % server.port
            with browsing(program, directory, site.origin):
                report = site.report()
            return report, keys(server.port)


def test_a_page_of_another_site_can_do_nothing(chromium: str, tmp_path: Path) -> None:
    report, written = visited(chromium, tmp_path, is_listed=False)
    assert written == set()
    for name in ("json", "simple", "page"):
        assert report[name][0].startswith("TypeError"), report
    for name in ("opaque", "last"):
        assert report[name] == ["opaque", 0, ""]


def test_a_page_of_a_listed_origin_can_do_everything(chromium: str, tmp_path: Path) -> None:
    report, written = visited(chromium, tmp_path, is_listed=True)
    for name in ("json", "simple", "page"):
        assert report[name][:2] == ["cors", 200], report
    assert "etcdserver" in report["page"][2]
    assert len(written) >= len(("json", "simple", "opaque", "form", "last"))


def test_an_address_that_is_typed_is_shown_and_a_rebound_name_is_not(
    chromium: str, tmp_path: Path
) -> None:
    with serving("--data-dir", "memory:") as server:
        assert "etcdserver" in seen(chromium, tmp_path, f"http://localhost:{server.port}/version")
        shown = seen(chromium, tmp_path, f"http://rebound.example:{server.port}/version")
        assert "--host-whitelist" in shown
        assert "etcdserver" not in shown
