"""How a real server ends: told to under load, and when its disk takes no more."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from leasehold.wire import rpc_pb2 as pb
from tests.faults.etcd_calls import EtcdCalls
from tests.faults.server_process import FAULTY_SERVER, ServerProcess

WRITERS = 4
DEADLINE_S = 30.0


class Writers:
    """Clients that put without pause, each its own key, until the server is gone."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.acknowledged = [0] * WRITERS
        self.errors: list[grpc.StatusCode] = []
        self.is_writing = threading.Event()

    def write(self, writer: int) -> None:
        """Put ever higher numbers."""
        with EtcdCalls(self._endpoint) as calls:
            for number in range(1, 1_000_000):
                try:
                    calls.put(b"key/%d" % writer, b"%d" % number)
                except grpc.RpcError as error:
                    self.errors.append(error.code())
                    return
                self.acknowledged[writer] = number
                if min(self.acknowledged) > 2:
                    self.is_writing.set()

    def check(self, endpoint: str) -> None:
        """Find everything that was acknowledged, and at most one put more for each writer."""
        with EtcdCalls(endpoint) as calls:
            for writer, number in enumerate(self.acknowledged):
                [pair] = calls.range(b"key/%d" % writer).kvs
                assert number <= int(pair.value) <= number + 1


@contextmanager
def writing(server: ServerProcess) -> Iterator[Writers]:
    writers = Writers(server.endpoint)
    with ThreadPoolExecutor(WRITERS) as pool:
        tasks = [pool.submit(writers.write, number) for number in range(WRITERS)]
        assert writers.is_writing.wait(DEADLINE_S)
        yield writers
        for task in tasks:
            task.result(DEADLINE_S)


def test_a_server_that_is_told_to_end_ends_though_clients_go_on_writing(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, (FAULTY_SERVER, "slow-disk")) as server:
        server.wait_until_ready()
        with writing(server) as writers:
            assert server.terminate() == 0
    assert set(writers.errors) == {grpc.StatusCode.UNAVAILABLE}
    assert {file.name for file in (tmp_path / "data").iterdir()} == {"LOCK", "leasehold.db"}
    with ServerProcess(tmp_path) as server:
        writers.check(server.wait_until_ready().endpoint)


def test_a_server_whose_disk_takes_no_more_ends_with_the_reason(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, (FAULTY_SERVER, "sinking-disk")) as server:
        server.wait_until_ready()
        with writing(server) as writers:
            server.send_signal(signal.SIGUSR1)
            assert server.wait() == 1
    assert set(writers.errors) == {grpc.StatusCode.UNAVAILABLE}
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert last.startswith("leasehold: stopped, because a commit failed: ")
    assert "full" in last
    with ServerProcess(tmp_path) as server:
        writers.check(server.wait_until_ready().endpoint)


def test_a_watch_on_a_server_that_ends_is_told_to_try_again(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        server.wait_until_ready()
        with grpc.insecure_channel(server.endpoint) as channel:
            watch = channel.stream_stream(
                "/etcdserverpb.Watch/Watch",
                pb.WatchRequest.SerializeToString,
                pb.WatchResponse.FromString,
            )
            create = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"key"))
            answers: Any = watch(iter([create]), timeout=DEADLINE_S)
            assert next(answers).created
            assert server.terminate() == 0
            with pytest.raises(grpc.RpcError):
                next(answers)
            assert answers.code() is grpc.StatusCode.UNAVAILABLE
            assert answers.details() == "etcdserver: server stopped"
