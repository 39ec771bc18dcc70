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
    b'antor\x18\x05 \x01(\tR\x07grantor"\x97\x01\n'
    b'\x0fRenewAllRequest\x12\x10\n\x03ids\x18'
    b'\x01 \x03(\x03R\x03ids\x12\x18\n\x07cookies\x18\x02 '
    b'\x03(\x0cR\x07cookies\x12\x1a\n\x06ttl_ms\x18\x03'
    b' \x01(\x03H\x00R\x05ttlMs\x88\x01\x01\x12\x17\n\x07ttls'
    b'_ms\x18\x04 \x03(\x03R\x06ttlsMs\x12\x18\n\x07gra'
    b'ntor\x18\x05 \x01(\tR\x07grantorB\t\n\x07_'
    b'ttl_ms"\xaf\x02\n\x10RenewAllRespo'
    b'nse\x124\n\x06header\x18\x01 \x01(\x0b2\x1c.et'
    b'cdserverpb.ResponseHeade'
    b'rR\x06header\x12\x15\n\x06ttl_ms\x18\x02 \x01('
    b'\x03R\x05ttlMs\x12\x16\n\x06others\x18\x03 \x03(\r'
    b'R\x06others\x12"\n\rothers_ttl_m'
    b's\x18\x04 \x03(\x03R\x0bothersTtlMs\x12\x18\n\x07'
    b'unknown\x18\x05 \x03(\rR\x07unknown\x12@'
    b'\n\x0funknown_reasons\x18\x06 \x03(\x0e2'
    b'\x17.leasehold.v1.EndReason'
    b'R\x0eunknownReasons\x126\n\x08fail'
    b'ures\x18\x07 \x03(\x0b2\x1a.leasehold.v'
    b'1.LeaseFailureR\x08failures'
    b'"n\n\x0cLeaseFailure\x12\x14\n\x05plac'
    b'e\x18\x01 \x01(\rR\x05place\x12\x16\n\x06status'
    b'\x18\x02 \x01(\x05R\x06status\x12\x18\n\x07messag'
    b'e\x18\x03 \x01(\tR\x07message\x12\x16\n\x06deni'
    b'ed\x18\x04 \x01(\x08R\x06denied"X\n\x10Revo'
    b'keAllRequest\x12\x10\n\x03ids\x18\x01 \x03('
    b'\x03R\x03ids\x12\x18\n\x07cookies\x18\x02 \x03(\x0cR'
    b'\x07cookies\x12\x18\n\x07grantor\x18\x03 \x01('
    b'\tR\x07grantor"\xdd\x01\n\x11RevokeAll'
    b'Response\x124\n\x06header\x18\x01 \x01(\x0b'
    b'2\x1c.etcdserverpb.Response'
    b'HeaderR\x06header\x12\x18\n\x07unknow'
    b'n\x18\x02 \x03(\rR\x07unknown\x12@\n\x0funkn'
    b'own_reasons\x18\x03 \x03(\x0e2\x17.leas'
    b'ehold.v1.EndReasonR\x0eunkn'
    b'ownReasons\x126\n\x08failures\x18\x04'
    b' \x03(\x0b2\x1a.leasehold.v1.Leas'
    b'eFailureR\x08failures"\x80\x01\n\x0bL'
    b'istRequest\x12\x1b\n\tpage_size\x18'
    b'\x01 \x01(\x03R\x08pageSize\x12\x1d\n\npage_'
    b'token\x18\x02 \x01(\x0cR\tpageToken\x12\x16'
    b'\n\x06holder\x18\x03 \x01(\tR\x06holder\x12\x1d'
    b'\n\nkey_prefix\x18\x04 \x01(\x0cR\tkeyP'
    b'refix"\x9f\x01\n\x0cListResponse\x124'
    b'\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdser'
    b'verpb.ResponseHeaderR\x06he'
    b'ader\x121\n\x06leases\x18\x02 \x03(\x0b2\x19.l'
    b'easehold.v1.ListedLeaseR'
    b'\x06leases\x12&\n\x0fnext_page_tok'
    b'en\x18\x03 \x01(\x0cR\rnextPageToken"'
    b'\x83\x01\n\x0bListedLease\x12\x0e\n\x02id\x18\x01 '
    b'\x01(\x03R\x02id\x12\x15\n\x06ttl_ms\x18\x02 \x01(\x03R'
    b'\x05ttlMs\x12!\n\x0cremaining_ms\x18\x03'
    b' \x01(\x03R\x0bremainingMs\x12\x12\n\x04key'
    b's\x18\x04 \x01(\x03R\x04keys\x12\x16\n\x06holder\x18'
    b'\x05 \x01(\tR\x06holder"y\n\x12WatchLe'
    b'asesRequest\x12\x10\n\x03ids\x18\x01 \x03(\x03'
    b'R\x03ids\x12\x16\n\x06holder\x18\x02 \x01(\tR\x06h'
    b'older\x12\x1d\n\nkey_prefix\x18\x03 \x01('
    b'\x0cR\tkeyPrefix\x12\x1a\n\x08renewals'
    b'\x18\x04 \x01(\x08R\x08renewals"\xaf\x01\n\x13Wat'
    b'chLeasesResponse\x124\n\x06head'
    b'er\x18\x01 \x01(\x0b2\x1c.etcdserverpb.'
    b'ResponseHeaderR\x06header\x12\x18'
    b'\n\x07created\x18\x02 \x01(\x08R\x07created'
    b'\x12\x16\n\x06lagged\x18\x03 \x01(\x03R\x06lagged'
    b'\x120\n\x06events\x18\x04 \x03(\x0b2\x18.lease'
    b'hold.v1.LeaseEventR\x06even'
    b'ts"\x89\x02\n\nLeaseEvent\x121\n\x04kin'
    b'd\x18\x01 \x01(\x0e2\x1d.leasehold.v1.L'
    b'easeEvent.KindR\x04kind\x12\x0e\n\x02'
    b'id\x18\x02 \x01(\x03R\x02id\x12\x16\n\x06holder\x18\x03'
    b' \x01(\tR\x06holder\x12\x15\n\x06ttl_ms\x18\x04'
    b' \x01(\x03R\x05ttlMs\x12\x12\n\x04keys\x18\x05 \x03('
    b'\x0cR\x04keys\x12\x1d\n\nkeys_count\x18\x06 '
    b'\x01(\x03R\tkeysCount\x12\x1a\n\x08revisi'
    b'on\x18\x07 \x01(\x03R\x08revision":\n\x04Ki'
    b'nd\x12\x0b\n\x07GRANTED\x10\x00\x12\x0b\n\x07RENEW'
    b'ED\x10\x01\x12\x0b\n\x07EXPIRED\x10\x02\x12\x0b\n\x07REV'
    b'OKED\x10\x03*2\n\tEndReason\x12\x0b\n\x07U'
    b'NKNOWN\x10\x00\x12\x0b\n\x07EXPIRED\x10\x01\x12\x0b\n'
    b'\x07REVOKED\x10\x022\xf2\x02\n\x06Leases\x12@\n'
    b'\x05Grant\x12\x1a.leasehold.v1.Gr'
    b'antRequest\x1a\x1b.leasehold.v'
    b'1.GrantResponse\x12I\n\x08Renew'
    b'All\x12\x1d.leasehold.v1.Renew'
    b'AllRequest\x1a\x1e.leasehold.v'
    b'1.RenewAllResponse\x12L\n\tRe'
    b'vokeAll\x12\x1e.leasehold.v1.R'
    b'evokeAllRequest\x1a\x1f.leaseh'
    b'old.v1.RevokeAllResponse'
    b'\x12=\n\x04List\x12\x19.leasehold.v1.'
    b'ListRequest\x1a\x1a.leasehold.'
    b'v1.ListResponse\x12N\n\x05Watch'
    b'\x12 .leasehold.v1.WatchLea'
    b'sesRequest\x1a!.leasehold.v'
    b'1.WatchLeasesResponse0\x01b'
    b'\x06proto3'
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
