"""Messages: etcd's wire format, gRPC's own services, the journal's; encoders where it must be fast.

The modules that end in `_pb2` are generated from `protos/` by `tools/generate_wire.py`.
"""
