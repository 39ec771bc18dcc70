# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/election.proto: change that one.
"""Messages of `election.proto`, in the private descriptor pool."""

from leasehold.wire import kv_pb2, rpc_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0eelection.proto\x12\x0cv3elec'
    b'tionpb\x1a\x08kv.proto\x1a\trpc.pr'
    b'oto"Y\n\tLeaderKey\x12\x12\n\x04name'
    b'\x18\x01 \x01(\x0cR\x04name\x12\x10\n\x03key\x18\x02 \x01('
    b'\x0cR\x03key\x12\x10\n\x03rev\x18\x03 \x01(\x03R\x03rev'
    b'\x12\x14\n\x05lease\x18\x04 \x01(\x03R\x05lease"Q'
    b'\n\x0fCampaignRequest\x12\x12\n\x04nam'
    b'e\x18\x01 \x01(\x0cR\x04name\x12\x14\n\x05lease\x18\x02'
    b' \x01(\x03R\x05lease\x12\x14\n\x05value\x18\x03 \x01'
    b'(\x0cR\x05value"y\n\x10CampaignRes'
    b'ponse\x124\n\x06header\x18\x01 \x01(\x0b2\x1c.'
    b'etcdserverpb.ResponseHea'
    b'derR\x06header\x12/\n\x06leader\x18\x02 '
    b'\x01(\x0b2\x17.v3electionpb.Leade'
    b'rKeyR\x06leader"#\n\rLeaderRe'
    b'quest\x12\x12\n\x04name\x18\x01 \x01(\x0cR\x04nam'
    b'e"h\n\x0eLeaderResponse\x124\n\x06h'
    b'eader\x18\x01 \x01(\x0b2\x1c.etcdserver'
    b'pb.ResponseHeaderR\x06heade'
    b'r\x12 \n\x02kv\x18\x02 \x01(\x0b2\x10.mvccpb.K'
    b'eyValueR\x02kv"@\n\rResignReq'
    b'uest\x12/\n\x06leader\x18\x01 \x01(\x0b2\x17.v'
    b'3electionpb.LeaderKeyR\x06l'
    b'eader"F\n\x0eResignResponse\x12'
    b'4\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdse'
    b'rverpb.ResponseHeaderR\x06h'
    b'eader"X\n\x0fProclaimRequest'
    b'\x12/\n\x06leader\x18\x01 \x01(\x0b2\x17.v3ele'
    b'ctionpb.LeaderKeyR\x06leade'
    b'r\x12\x14\n\x05value\x18\x02 \x01(\x0cR\x05value"'
    b'H\n\x10ProclaimResponse\x124\n\x06h'
    b'eader\x18\x01 \x01(\x0b2\x1c.etcdserver'
    b'pb.ResponseHeaderR\x06heade'
    b'r2\xf2\x02\n\x08Election\x12I\n\x08Campai'
    b'gn\x12\x1d.v3electionpb.Campai'
    b'gnRequest\x1a\x1e.v3electionpb'
    b'.CampaignResponse\x12I\n\x08Pro'
    b'claim\x12\x1d.v3electionpb.Pro'
    b'claimRequest\x1a\x1e.v3electio'
    b'npb.ProclaimResponse\x12C\n\x06'
    b'Leader\x12\x1b.v3electionpb.Le'
    b'aderRequest\x1a\x1c.v3election'
    b'pb.LeaderResponse\x12F\n\x07Obs'
    b'erve\x12\x1b.v3electionpb.Lead'
    b'erRequest\x1a\x1c.v3electionpb'
    b'.LeaderResponse0\x01\x12C\n\x06Res'
    b'ign\x12\x1b.v3electionpb.Resig'
    b'nRequest\x1a\x1c.v3electionpb.'
    b'ResignResponseb\x06proto3'
)

LeaderKey = message_class(DESCRIPTOR, "LeaderKey")
CampaignRequest = message_class(DESCRIPTOR, "CampaignRequest")
CampaignResponse = message_class(DESCRIPTOR, "CampaignResponse")
LeaderRequest = message_class(DESCRIPTOR, "LeaderRequest")
LeaderResponse = message_class(DESCRIPTOR, "LeaderResponse")
ResignRequest = message_class(DESCRIPTOR, "ResignRequest")
ResignResponse = message_class(DESCRIPTOR, "ResignResponse")
ProclaimRequest = message_class(DESCRIPTOR, "ProclaimRequest")
ProclaimResponse = message_class(DESCRIPTOR, "ProclaimResponse")
