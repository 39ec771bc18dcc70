"""The versions of etcd that the server says it is: clients decide by them what they may ask for."""

from typing import Final

ETCD_VERSION: Final = "3.5.1"
CLUSTER_VERSION: Final = "3.5.0"
