# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/maintenance.proto: change that one.
"""Messages of `maintenance.proto`, in the private descriptor pool."""

from leasehold.wire import rpc_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x11maintenance.proto\x12\x0cetc'
    b'dserverpb\x1a\trpc.proto"\xcf\x01\n'
    b'\x0cAlarmRequest\x12>\n\x06action\x18'
    b'\x01 \x01(\x0e2&.etcdserverpb.Ala'
    b'rmRequest.AlarmActionR\x06a'
    b'ction\x12\x1a\n\x08memberID\x18\x02 \x01(\x04R'
    b'\x08memberID\x12-\n\x05alarm\x18\x03 \x01(\x0e'
    b'2\x17.etcdserverpb.AlarmTyp'
    b'eR\x05alarm"4\n\x0bAlarmAction\x12'
    b'\x07\n\x03GET\x10\x00\x12\x0c\n\x08ACTIVATE\x10\x01\x12\x0e'
    b'\n\nDEACTIVATE\x10\x02"X\n\x0bAlarmM'
    b'ember\x12\x1a\n\x08memberID\x18\x01 \x01(\x04R'
    b'\x08memberID\x12-\n\x05alarm\x18\x02 \x01(\x0e'
    b'2\x17.etcdserverpb.AlarmTyp'
    b'eR\x05alarm"x\n\rAlarmRespons'
    b'e\x124\n\x06header\x18\x01 \x01(\x0b2\x1c.etcd'
    b'serverpb.ResponseHeaderR'
    b'\x06header\x121\n\x06alarms\x18\x02 \x03(\x0b2'
    b'\x19.etcdserverpb.AlarmMemb'
    b'erR\x06alarms"\x0f\n\rStatusRequ'
    b'est"\xce\x02\n\x0eStatusResponse\x124'
    b'\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdser'
    b'verpb.ResponseHeaderR\x06he'
    b'ader\x12\x18\n\x07version\x18\x02 \x01(\tR\x07v'
    b'ersion\x12\x16\n\x06dbSize\x18\x03 \x01(\x03R\x06'
    b'dbSize\x12\x16\n\x06leader\x18\x04 \x01(\x04R\x06'
    b'leader\x12\x1c\n\traftIndex\x18\x05 \x01('
    b'\x04R\traftIndex\x12\x1a\n\x08raftTerm'
    b'\x18\x06 \x01(\x04R\x08raftTerm\x12*\n\x10raft'
    b'AppliedIndex\x18\x07 \x01(\x04R\x10raft'
    b'AppliedIndex\x12\x16\n\x06errors\x18\x08'
    b' \x03(\tR\x06errors\x12 \n\x0bdbSizeIn'
    b'Use\x18\t \x01(\x03R\x0bdbSizeInUse\x12\x1c'
    b'\n\tisLearner\x18\n \x01(\x08R\tisLea'
    b'rner"\x13\n\x11DefragmentReques'
    b't"J\n\x12DefragmentResponse\x12'
    b'4\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdse'
    b'rverpb.ResponseHeaderR\x06h'
    b'eader"\r\n\x0bHashRequest"X\n\x0c'
    b'HashResponse\x124\n\x06header\x18\x01'
    b' \x01(\x0b2\x1c.etcdserverpb.Resp'
    b'onseHeaderR\x06header\x12\x12\n\x04ha'
    b'sh\x18\x02 \x01(\rR\x04hash"+\n\rHashKV'
    b'Request\x12\x1a\n\x08revision\x18\x01 \x01('
    b'\x03R\x08revision"\x85\x01\n\x0eHashKVRe'
    b'sponse\x124\n\x06header\x18\x01 \x01(\x0b2\x1c'
    b'.etcdserverpb.ResponseHe'
    b'aderR\x06header\x12\x12\n\x04hash\x18\x02 \x01'
    b'(\rR\x04hash\x12)\n\x10compact_revi'
    b'sion\x18\x03 \x01(\x03R\x0fcompactRevis'
    b'ion"\x11\n\x0fSnapshotRequest"\x85'
    b'\x01\n\x10SnapshotResponse\x124\n\x06h'
    b'eader\x18\x01 \x01(\x0b2\x1c.etcdserver'
    b'pb.ResponseHeaderR\x06heade'
    b"r\x12'\n\x0fremaining_bytes\x18\x02 \x01"
    b'(\x04R\x0eremainingBytes\x12\x12\n\x04bl'
    b'ob\x18\x03 \x01(\x0cR\x04blob"/\n\x11MoveLe'
    b'aderRequest\x12\x1a\n\x08targetID\x18'
    b'\x01 \x01(\x04R\x08targetID"J\n\x12MoveL'
    b'eaderResponse\x124\n\x06header\x18'
    b'\x01 \x01(\x0b2\x1c.etcdserverpb.Res'
    b'ponseHeaderR\x06header"\xad\x01\n\x10'
    b'DowngradeRequest\x12F\n\x06acti'
    b'on\x18\x01 \x01(\x0e2..etcdserverpb.'
    b'DowngradeRequest.Downgra'
    b'deActionR\x06action\x12\x18\n\x07vers'
    b'ion\x18\x02 \x01(\tR\x07version"7\n\x0fDo'
    b'wngradeAction\x12\x0c\n\x08VALIDAT'
    b'E\x10\x00\x12\n\n\x06ENABLE\x10\x01\x12\n\n\x06CANCE'
    b'L\x10\x02"c\n\x11DowngradeResponse'
    b'\x124\n\x06header\x18\x01 \x01(\x0b2\x1c.etcds'
    b'erverpb.ResponseHeaderR\x06'
    b'header\x12\x18\n\x07version\x18\x02 \x01(\tR'
    b'\x07version*/\n\tAlarmType\x12\x08\n'
    b'\x04NONE\x10\x00\x12\x0b\n\x07NOSPACE\x10\x01\x12\x0b\n\x07'
    b'CORRUPT\x10\x022\xd5\x04\n\x0bMaintenanc'
    b'e\x12@\n\x05Alarm\x12\x1a.etcdserverp'
    b'b.AlarmRequest\x1a\x1b.etcdser'
    b'verpb.AlarmResponse\x12C\n\x06S'
    b'tatus\x12\x1b.etcdserverpb.Sta'
    b'tusRequest\x1a\x1c.etcdserverp'
    b'b.StatusResponse\x12O\n\nDefr'
    b'agment\x12\x1f.etcdserverpb.De'
    b'fragmentRequest\x1a .etcdse'
    b'rverpb.DefragmentRespons'
    b'e\x12=\n\x04Hash\x12\x19.etcdserverpb'
    b'.HashRequest\x1a\x1a.etcdserve'
    b'rpb.HashResponse\x12C\n\x06Hash'
    b'KV\x12\x1b.etcdserverpb.HashKV'
    b'Request\x1a\x1c.etcdserverpb.H'
    b'ashKVResponse\x12K\n\x08Snapsho'
    b't\x12\x1d.etcdserverpb.Snapsho'
    b'tRequest\x1a\x1e.etcdserverpb.'
    b'SnapshotResponse0\x01\x12O\n\nMo'
    b'veLeader\x12\x1f.etcdserverpb.'
    b'MoveLeaderRequest\x1a .etcd'
    b'serverpb.MoveLeaderRespo'
    b'nse\x12L\n\tDowngrade\x12\x1e.etcds'
    b'erverpb.DowngradeRequest'
    b'\x1a\x1f.etcdserverpb.Downgrad'
    b'eResponseb\x06proto3'
)

AlarmRequest = message_class(DESCRIPTOR, "AlarmRequest")
AlarmMember = message_class(DESCRIPTOR, "AlarmMember")
AlarmResponse = message_class(DESCRIPTOR, "AlarmResponse")
StatusRequest = message_class(DESCRIPTOR, "StatusRequest")
StatusResponse = message_class(DESCRIPTOR, "StatusResponse")
DefragmentRequest = message_class(DESCRIPTOR, "DefragmentRequest")
DefragmentResponse = message_class(DESCRIPTOR, "DefragmentResponse")
HashRequest = message_class(DESCRIPTOR, "HashRequest")
HashResponse = message_class(DESCRIPTOR, "HashResponse")
HashKVRequest = message_class(DESCRIPTOR, "HashKVRequest")
HashKVResponse = message_class(DESCRIPTOR, "HashKVResponse")
SnapshotRequest = message_class(DESCRIPTOR, "SnapshotRequest")
SnapshotResponse = message_class(DESCRIPTOR, "SnapshotResponse")
MoveLeaderRequest = message_class(DESCRIPTOR, "MoveLeaderRequest")
MoveLeaderResponse = message_class(DESCRIPTOR, "MoveLeaderResponse")
DowngradeRequest = message_class(DESCRIPTOR, "DowngradeRequest")
DowngradeResponse = message_class(DESCRIPTOR, "DowngradeResponse")
NONE = 0
NOSPACE = 1
CORRUPT = 2
