"""etcd's services, on its wire format: each a plain function of a message."""
