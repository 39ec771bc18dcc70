"""Messages of etcd, gRPC's own services and the journal; fast encoders for frequent messages.

The modules that end in `_pb2` are generated from `protos/` by `tools/generate_wire.py`.
"""
