"""The services as JSON over plain HTTP, as etcd's gateway has them."""
