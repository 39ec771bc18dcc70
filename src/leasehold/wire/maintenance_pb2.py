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
    b'est"\xfa\x02\n\x0eStatusResponse\x124'
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
    b'rner\x12*\n\x10leasehold_engine'
    b'\x18\xe8\x07 \x01(\tR\x0fleaseholdEngine'
    b'"\x13\n\x11DefragmentRequest"J\n'
    b'\x12DefragmentResponse\x124\n\x06h'
    b'eader\x18\x01 \x01(\x0b2\x1c.etcdserver'
    b'pb.ResponseHeaderR\x06heade'
    b'r"\r\n\x0bHashRequest"X\n\x0cHash'
    b'Response\x124\n\x06header\x18\x01 \x01(\x0b'
    b'2\x1c.etcdserverpb.Response'
    b'HeaderR\x06header\x12\x12\n\x04hash\x18\x02'
    b' \x01(\rR\x04hash"+\n\rHashKVRequ'
    b'est\x12\x1a\n\x08revision\x18\x01 \x01(\x03R\x08r'
    b'evision"\x85\x01\n\x0eHashKVRespon'
    b'se\x124\n\x06header\x18\x01 \x01(\x0b2\x1c.etc'
    b'dserverpb.ResponseHeader'
    b'R\x06header\x12\x12\n\x04hash\x18\x02 \x01(\rR\x04'
    b'hash\x12)\n\x10compact_revision'
    b'\x18\x03 \x01(\x03R\x0fcompactRevision"'
    b'\x11\n\x0fSnapshotRequest"\x85\x01\n\x10S'
    b'napshotResponse\x124\n\x06heade'
    b'r\x18\x01 \x01(\x0b2\x1c.etcdserverpb.R'
    b"esponseHeaderR\x06header\x12'\n"
    b'\x0fremaining_bytes\x18\x02 \x01(\x04R\x0e'
    b'remainingBytes\x12\x12\n\x04blob\x18\x03'
    b' \x01(\x0cR\x04blob"/\n\x11MoveLeader'
    b'Request\x12\x1a\n\x08targetID\x18\x01 \x01('
    b'\x04R\x08targetID"J\n\x12MoveLeade'
    b'rResponse\x124\n\x06header\x18\x01 \x01('
    b'\x0b2\x1c.etcdserverpb.Respons'
    b'eHeaderR\x06header"\xad\x01\n\x10Down'
    b'gradeRequest\x12F\n\x06action\x18\x01'
    b' \x01(\x0e2..etcdserverpb.Down'
    b'gradeRequest.DowngradeAc'
    b'tionR\x06action\x12\x18\n\x07version\x18'
    b'\x02 \x01(\tR\x07version"7\n\x0fDowngr'
    b'adeAction\x12\x0c\n\x08VALIDATE\x10\x00\x12'
    b'\n\n\x06ENABLE\x10\x01\x12\n\n\x06CANCEL\x10\x02"'
    b'c\n\x11DowngradeResponse\x124\n\x06'
    b'header\x18\x01 \x01(\x0b2\x1c.etcdserve'
    b'rpb.ResponseHeaderR\x06head'
    b'er\x12\x18\n\x07version\x18\x02 \x01(\tR\x07ver'
    b'sion*/\n\tAlarmType\x12\x08\n\x04NON'
    b'E\x10\x00\x12\x0b\n\x07NOSPACE\x10\x01\x12\x0b\n\x07CORR'
    b'UPT\x10\x022\xd5\x04\n\x0bMaintenance\x12@\n'
    b'\x05Alarm\x12\x1a.etcdserverpb.Al'
    b'armRequest\x1a\x1b.etcdserverp'
    b'b.AlarmResponse\x12C\n\x06Statu'
    b's\x12\x1b.etcdserverpb.StatusR'
    b'equest\x1a\x1c.etcdserverpb.St'
    b'atusResponse\x12O\n\nDefragme'
    b'nt\x12\x1f.etcdserverpb.Defrag'
    b'mentRequest\x1a .etcdserver'
    b'pb.DefragmentResponse\x12=\n'
    b'\x04Hash\x12\x19.etcdserverpb.Has'
    b'hRequest\x1a\x1a.etcdserverpb.'
    b'HashResponse\x12C\n\x06HashKV\x12\x1b'
    b'.etcdserverpb.HashKVRequ'
    b'est\x1a\x1c.etcdserverpb.HashK'
    b'VResponse\x12K\n\x08Snapshot\x12\x1d.'
    b'etcdserverpb.SnapshotReq'
    b'uest\x1a\x1e.etcdserverpb.Snap'
    b'shotResponse0\x01\x12O\n\nMoveLe'
    b'ader\x12\x1f.etcdserverpb.Move'
    b'LeaderRequest\x1a .etcdserv'
    b'erpb.MoveLeaderResponse\x12'
    b'L\n\tDowngrade\x12\x1e.etcdserve'
    b'rpb.DowngradeRequest\x1a\x1f.e'
    b'tcdserverpb.DowngradeRes'
    b'ponseb\x06proto3'
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
