"""What real etcd answers is what ours answers: each test runs against both."""
