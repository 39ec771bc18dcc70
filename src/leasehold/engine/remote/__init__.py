"""The engine behind a network: a Leasehold server, or an etcd cluster."""
