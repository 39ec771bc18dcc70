# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/cluster.proto: change that one.
"""Messages of `cluster.proto`, in the private descriptor pool."""

from leasehold.wire import rpc_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\rcluster.proto\x12\x0cetcdser'
    b'verpb\x1a\trpc.proto"\x86\x01\n\x06Mem'
    b'ber\x12\x0e\n\x02ID\x18\x01 \x01(\x04R\x02ID\x12\x12\n\x04n'
    b'ame\x18\x02 \x01(\tR\x04name\x12\x1a\n\x08peerU'
    b'RLs\x18\x03 \x03(\tR\x08peerURLs\x12\x1e\n\nc'
    b'lientURLs\x18\x04 \x03(\tR\nclientU'
    b'RLs\x12\x1c\n\tisLearner\x18\x05 \x01(\x08R\t'
    b'isLearner"L\n\x10MemberAddRe'
    b'quest\x12\x1a\n\x08peerURLs\x18\x01 \x03(\tR'
    b'\x08peerURLs\x12\x1c\n\tisLearner\x18\x02'
    b' \x01(\x08R\tisLearner"\xa7\x01\n\x11Memb'
    b'erAddResponse\x124\n\x06header\x18'
    b'\x01 \x01(\x0b2\x1c.etcdserverpb.Res'
    b'ponseHeaderR\x06header\x12,\n\x06m'
    b'ember\x18\x02 \x01(\x0b2\x14.etcdserver'
    b'pb.MemberR\x06member\x12.\n\x07mem'
    b'bers\x18\x03 \x03(\x0b2\x14.etcdserverp'
    b'b.MemberR\x07members"%\n\x13Mem'
    b'berRemoveRequest\x12\x0e\n\x02ID\x18\x01'
    b' \x01(\x04R\x02ID"|\n\x14MemberRemove'
    b'Response\x124\n\x06header\x18\x01 \x01(\x0b'
    b'2\x1c.etcdserverpb.Response'
    b'HeaderR\x06header\x12.\n\x07member'
    b's\x18\x02 \x03(\x0b2\x14.etcdserverpb.M'
    b'emberR\x07members"A\n\x13Member'
    b'UpdateRequest\x12\x0e\n\x02ID\x18\x01 \x01('
    b'\x04R\x02ID\x12\x1a\n\x08peerURLs\x18\x02 \x03(\tR'
    b'\x08peerURLs"|\n\x14MemberUpdat'
    b'eResponse\x124\n\x06header\x18\x01 \x01('
    b'\x0b2\x1c.etcdserverpb.Respons'
    b'eHeaderR\x06header\x12.\n\x07membe'
    b'rs\x18\x02 \x03(\x0b2\x14.etcdserverpb.'
    b'MemberR\x07members"7\n\x11Membe'
    b'rListRequest\x12"\n\x0clineariz'
    b'able\x18\x01 \x01(\x08R\x0clinearizable'
    b'"z\n\x12MemberListResponse\x124'
    b'\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdser'
    b'verpb.ResponseHeaderR\x06he'
    b'ader\x12.\n\x07members\x18\x02 \x03(\x0b2\x14.'
    b'etcdserverpb.MemberR\x07mem'
    b'bers"&\n\x14MemberPromoteReq'
    b'uest\x12\x0e\n\x02ID\x18\x01 \x01(\x04R\x02ID"}\n\x15'
    b'MemberPromoteResponse\x124\n'
    b'\x06header\x18\x01 \x01(\x0b2\x1c.etcdserv'
    b'erpb.ResponseHeaderR\x06hea'
    b'der\x12.\n\x07members\x18\x02 \x03(\x0b2\x14.e'
    b'tcdserverpb.MemberR\x07memb'
    b'ers2\xb0\x03\n\x07Cluster\x12L\n\tMembe'
    b'rAdd\x12\x1e.etcdserverpb.Memb'
    b'erAddRequest\x1a\x1f.etcdserve'
    b'rpb.MemberAddResponse\x12U\n'
    b'\x0cMemberRemove\x12!.etcdserv'
    b'erpb.MemberRemoveRequest'
    b'\x1a".etcdserverpb.MemberRe'
    b'moveResponse\x12U\n\x0cMemberUp'
    b'date\x12!.etcdserverpb.Memb'
    b'erUpdateRequest\x1a".etcdse'
    b'rverpb.MemberUpdateRespo'
    b'nse\x12O\n\nMemberList\x12\x1f.etcd'
    b'serverpb.MemberListReque'
    b'st\x1a .etcdserverpb.Member'
    b'ListResponse\x12X\n\rMemberPr'
    b'omote\x12".etcdserverpb.Mem'
    b'berPromoteRequest\x1a#.etcd'
    b'serverpb.MemberPromoteRe'
    b'sponseb\x06proto3'
)

Member = message_class(DESCRIPTOR, "Member")
MemberAddRequest = message_class(DESCRIPTOR, "MemberAddRequest")
MemberAddResponse = message_class(DESCRIPTOR, "MemberAddResponse")
MemberRemoveRequest = message_class(DESCRIPTOR, "MemberRemoveRequest")
MemberRemoveResponse = message_class(DESCRIPTOR, "MemberRemoveResponse")
MemberUpdateRequest = message_class(DESCRIPTOR, "MemberUpdateRequest")
MemberUpdateResponse = message_class(DESCRIPTOR, "MemberUpdateResponse")
MemberListRequest = message_class(DESCRIPTOR, "MemberListRequest")
MemberListResponse = message_class(DESCRIPTOR, "MemberListResponse")
MemberPromoteRequest = message_class(DESCRIPTOR, "MemberPromoteRequest")
MemberPromoteResponse = message_class(DESCRIPTOR, "MemberPromoteResponse")
