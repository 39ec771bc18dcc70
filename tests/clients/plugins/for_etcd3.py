"""Settings for etcd3's own tests, loaded by pytest in etcd3's environment. It changes none of them.

Some rely on the port that clients use when told none, so that is moved. The properties are tried
with ten examples instead of a hundred, as each of them starts etcdctl a few times; that they share
a fixture, as these tests do, is refused by newer versions of hypothesis.
"""

import os
from urllib.parse import urlsplit

import etcd3
from hypothesis import HealthCheck, settings

_port = urlsplit(os.environ["PYTHON_ETCD_HTTP_URL"]).port
etcd3.client.__defaults__ = ("127.0.0.1", _port, *etcd3.client.__defaults__[2:])

_shared = [HealthCheck.function_scoped_fixture]
settings.register_profile("few", max_examples=10, suppress_health_check=_shared)
settings.load_profile("few")
