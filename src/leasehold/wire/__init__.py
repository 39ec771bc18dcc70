"""Messages: etcd's wire format and the journal's, and encoders for the answers that must be fast.

`kv_pb2`, `rpc_pb2` and `journal_pb2` are generated from `protos/` by `tools/generate_wire.py`.
"""
