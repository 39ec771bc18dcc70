"""One port: the services of etcd v3 on a store, and plain HTTP beside them."""
