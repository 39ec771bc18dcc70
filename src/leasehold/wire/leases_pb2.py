# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/leases.proto: change that one.
"""Messages of `leases.proto`, in the private descriptor pool."""

from leasehold.wire import rpc_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0cleases.proto\x12\x0cleasehol'
    b'd.v1\x1a\trpc.proto"\x81\x01\n\x0cGran'
    b'tRequest\x12\x15\n\x06ttl_ms\x18\x01 \x01(\x03'
    b'R\x05ttlMs\x12\x0e\n\x02id\x18\x02 \x01(\x03R\x02id\x12'
    b'\x16\n\x06holder\x18\x03 \x01(\tR\x06holder\x12'
    b'\x16\n\x06policy\x18\x04 \x01(\tR\x06policy\x12'
    b'\x1a\n\x08resource\x18\x05 \x01(\tR\x08resou'
    b'rce"\x9e\x01\n\rGrantResponse\x124\n'
    b'\x06header\x18\x01 \x01(\x0b2\x1c.etcdserv'
    b'erpb.ResponseHeaderR\x06hea'
    b'der\x12\x0e\n\x02id\x18\x02 \x01(\x03R\x02id\x12\x15\n\x06t'
    b'tl_ms\x18\x03 \x01(\x03R\x05ttlMs\x12\x16\n\x06co'
    b'okie\x18\x04 \x01(\x0cR\x06cookie\x12\x18\n\x07gr'
    b'antor\x18\x05 \x01(\tR\x07grantor"}\n\x0f'
    b'RenewAllRequest\x12\x10\n\x03ids\x18\x01'
    b' \x03(\x03R\x03ids\x12\x18\n\x07cookies\x18\x02 \x03'
    b'(\x0cR\x07cookies\x12\x1a\n\x06ttl_ms\x18\x03 '
    b'\x01(\x03H\x00R\x05ttlMs\x88\x01\x01\x12\x17\n\x07ttls_'
    b'ms\x18\x04 \x03(\x03R\x06ttlsMsB\t\n\x07_ttl'
    b'_ms"\xaf\x02\n\x10RenewAllResponse'
    b'\x124\n\x06header\x18\x01 \x01(\x0b2\x1c.etcds'
    b'erverpb.ResponseHeaderR\x06'
    b'header\x12\x15\n\x06ttl_ms\x18\x02 \x01(\x03R\x05'
    b'ttlMs\x12\x16\n\x06others\x18\x03 \x03(\rR\x06o'
    b'thers\x12"\n\rothers_ttl_ms\x18\x04'
    b' \x03(\x03R\x0bothersTtlMs\x12\x18\n\x07unk'
    b'nown\x18\x05 \x03(\rR\x07unknown\x12@\n\x0fu'
    b'nknown_reasons\x18\x06 \x03(\x0e2\x17.l'
    b'easehold.v1.EndReasonR\x0eu'
    b'nknownReasons\x126\n\x08failure'
    b's\x18\x07 \x03(\x0b2\x1a.leasehold.v1.L'
    b'easeFailureR\x08failures"n\n'
    b'\x0cLeaseFailure\x12\x14\n\x05place\x18\x01'
    b' \x01(\rR\x05place\x12\x16\n\x06status\x18\x02 '
    b'\x01(\x05R\x06status\x12\x18\n\x07message\x18\x03'
    b' \x01(\tR\x07message\x12\x16\n\x06denied\x18'
    b'\x04 \x01(\x08R\x06denied">\n\x10RevokeA'
    b'llRequest\x12\x10\n\x03ids\x18\x01 \x03(\x03R\x03'
    b'ids\x12\x18\n\x07cookies\x18\x02 \x03(\x0cR\x07co'
    b'okies"\xdd\x01\n\x11RevokeAllRespo'
    b'nse\x124\n\x06header\x18\x01 \x01(\x0b2\x1c.et'
    b'cdserverpb.ResponseHeade'
    b'rR\x06header\x12\x18\n\x07unknown\x18\x02 \x03'
    b'(\rR\x07unknown\x12@\n\x0funknown_r'
    b'easons\x18\x03 \x03(\x0e2\x17.leasehold'
    b'.v1.EndReasonR\x0eunknownRe'
    b'asons\x126\n\x08failures\x18\x04 \x03(\x0b2'
    b'\x1a.leasehold.v1.LeaseFail'
    b'ureR\x08failures"\x80\x01\n\x0bListRe'
    b'quest\x12\x1b\n\tpage_size\x18\x01 \x01(\x03'
    b'R\x08pageSize\x12\x1d\n\npage_token'
    b'\x18\x02 \x01(\x0cR\tpageToken\x12\x16\n\x06hol'
    b'der\x18\x03 \x01(\tR\x06holder\x12\x1d\n\nkey'
    b'_prefix\x18\x04 \x01(\x0cR\tkeyPrefix'
    b'"\x9f\x01\n\x0cListResponse\x124\n\x06hea'
    b'der\x18\x01 \x01(\x0b2\x1c.etcdserverpb'
    b'.ResponseHeaderR\x06header\x12'
    b'1\n\x06leases\x18\x02 \x03(\x0b2\x19.leaseh'
    b'old.v1.ListedLeaseR\x06leas'
    b'es\x12&\n\x0fnext_page_token\x18\x03 '
    b'\x01(\x0cR\rnextPageToken"\x83\x01\n\x0bL'
    b'istedLease\x12\x0e\n\x02id\x18\x01 \x01(\x03R\x02'
    b'id\x12\x15\n\x06ttl_ms\x18\x02 \x01(\x03R\x05ttlM'
    b's\x12!\n\x0cremaining_ms\x18\x03 \x01(\x03R'
    b'\x0bremainingMs\x12\x12\n\x04keys\x18\x04 \x01'
    b'(\x03R\x04keys\x12\x16\n\x06holder\x18\x05 \x01(\t'
    b'R\x06holder"y\n\x12WatchLeasesR'
    b'equest\x12\x10\n\x03ids\x18\x01 \x03(\x03R\x03ids'
    b'\x12\x16\n\x06holder\x18\x02 \x01(\tR\x06holder'
    b'\x12\x1d\n\nkey_prefix\x18\x03 \x01(\x0cR\tke'
    b'yPrefix\x12\x1a\n\x08renewals\x18\x04 \x01('
    b'\x08R\x08renewals"\xaf\x01\n\x13WatchLea'
    b'sesResponse\x124\n\x06header\x18\x01 '
    b'\x01(\x0b2\x1c.etcdserverpb.Respo'
    b'nseHeaderR\x06header\x12\x18\n\x07cre'
    b'ated\x18\x02 \x01(\x08R\x07created\x12\x16\n\x06l'
    b'agged\x18\x03 \x01(\x03R\x06lagged\x120\n\x06e'
    b'vents\x18\x04 \x03(\x0b2\x18.leasehold.'
    b'v1.LeaseEventR\x06events"\x89\x02'
    b'\n\nLeaseEvent\x121\n\x04kind\x18\x01 \x01'
    b'(\x0e2\x1d.leasehold.v1.LeaseE'
    b'vent.KindR\x04kind\x12\x0e\n\x02id\x18\x02 '
    b'\x01(\x03R\x02id\x12\x16\n\x06holder\x18\x03 \x01(\tR'
    b'\x06holder\x12\x15\n\x06ttl_ms\x18\x04 \x01(\x03R'
    b'\x05ttlMs\x12\x12\n\x04keys\x18\x05 \x03(\x0cR\x04ke'
    b'ys\x12\x1d\n\nkeys_count\x18\x06 \x01(\x03R\t'
    b'keysCount\x12\x1a\n\x08revision\x18\x07 '
    b'\x01(\x03R\x08revision":\n\x04Kind\x12\x0b\n'
    b'\x07GRANTED\x10\x00\x12\x0b\n\x07RENEWED\x10\x01\x12'
    b'\x0b\n\x07EXPIRED\x10\x02\x12\x0b\n\x07REVOKED\x10'
    b'\x03*2\n\tEndReason\x12\x0b\n\x07UNKNOW'
    b'N\x10\x00\x12\x0b\n\x07EXPIRED\x10\x01\x12\x0b\n\x07REVO'
    b'KED\x10\x022\xf2\x02\n\x06Leases\x12@\n\x05Gran'
    b't\x12\x1a.leasehold.v1.GrantRe'
    b'quest\x1a\x1b.leasehold.v1.Gra'
    b'ntResponse\x12I\n\x08RenewAll\x12\x1d'
    b'.leasehold.v1.RenewAllRe'
    b'quest\x1a\x1e.leasehold.v1.Ren'
    b'ewAllResponse\x12L\n\tRevokeA'
    b'll\x12\x1e.leasehold.v1.Revoke'
    b'AllRequest\x1a\x1f.leasehold.v'
    b'1.RevokeAllResponse\x12=\n\x04L'
    b'ist\x12\x19.leasehold.v1.ListR'
    b'equest\x1a\x1a.leasehold.v1.Li'
    b'stResponse\x12N\n\x05Watch\x12 .le'
    b'asehold.v1.WatchLeasesRe'
    b'quest\x1a!.leasehold.v1.Wat'
    b'chLeasesResponse0\x01b\x06prot'
    b'o3'
)

GrantRequest = message_class(DESCRIPTOR, "GrantRequest")
GrantResponse = message_class(DESCRIPTOR, "GrantResponse")
RenewAllRequest = message_class(DESCRIPTOR, "RenewAllRequest")
RenewAllResponse = message_class(DESCRIPTOR, "RenewAllResponse")
LeaseFailure = message_class(DESCRIPTOR, "LeaseFailure")
RevokeAllRequest = message_class(DESCRIPTOR, "RevokeAllRequest")
RevokeAllResponse = message_class(DESCRIPTOR, "RevokeAllResponse")
ListRequest = message_class(DESCRIPTOR, "ListRequest")
ListResponse = message_class(DESCRIPTOR, "ListResponse")
ListedLease = message_class(DESCRIPTOR, "ListedLease")
WatchLeasesRequest = message_class(DESCRIPTOR, "WatchLeasesRequest")
WatchLeasesResponse = message_class(DESCRIPTOR, "WatchLeasesResponse")
LeaseEvent = message_class(DESCRIPTOR, "LeaseEvent")
UNKNOWN = 0
EXPIRED = 1
REVOKED = 2
