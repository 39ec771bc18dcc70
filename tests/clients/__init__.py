"""Real clients, unchanged, against real etcd and against ours."""
