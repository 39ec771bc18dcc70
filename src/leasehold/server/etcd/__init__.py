"""etcd's services, on its wire format: each method is a plain function of a message."""
