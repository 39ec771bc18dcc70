# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/auth.proto: change that one.
"""Messages of `auth.proto`, in the private descriptor pool."""

from leasehold.wire import authpb_pb2, rpc_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\nauth.proto\x12\x0cetcdserver'
    b'pb\x1a\x0cauthpb.proto\x1a\trpc.pr'
    b'oto"\x13\n\x11AuthEnableRequest'
    b'"J\n\x12AuthEnableResponse\x124'
    b'\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdser'
    b'verpb.ResponseHeaderR\x06he'
    b'ader"\x14\n\x12AuthDisableReque'
    b'st"K\n\x13AuthDisableRespons'
    b'e\x124\n\x06header\x18\x01 \x01(\x0b2\x1c.etcd'
    b'serverpb.ResponseHeaderR'
    b'\x06header"\x13\n\x11AuthStatusReq'
    b'uest"\x88\x01\n\x12AuthStatusRespo'
    b'nse\x124\n\x06header\x18\x01 \x01(\x0b2\x1c.et'
    b'cdserverpb.ResponseHeade'
    b'rR\x06header\x12\x18\n\x07enabled\x18\x02 \x01'
    b'(\x08R\x07enabled\x12"\n\x0cauthRevis'
    b'ion\x18\x03 \x01(\x04R\x0cauthRevision"'
    b'E\n\x13AuthenticateRequest\x12\x12'
    b'\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08pa'
    b'ssword\x18\x02 \x01(\tR\x08password"b'
    b'\n\x14AuthenticateResponse\x124'
    b'\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdser'
    b'verpb.ResponseHeaderR\x06he'
    b'ader\x12\x14\n\x05token\x18\x02 \x01(\tR\x05tok'
    b'en"\x9e\x01\n\x12AuthUserAddReques'
    b't\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n'
    b'\x08password\x18\x02 \x01(\tR\x08passwor'
    b'd\x120\n\x07options\x18\x03 \x01(\x0b2\x16.aut'
    b'hpb.UserAddOptionsR\x07opti'
    b'ons\x12&\n\x0ehashedPassword\x18\x04 '
    b'\x01(\tR\x0ehashedPassword"K\n\x13A'
    b'uthUserAddResponse\x124\n\x06he'
    b'ader\x18\x01 \x01(\x0b2\x1c.etcdserverp'
    b'b.ResponseHeaderR\x06header'
    b'"(\n\x12AuthUserGetRequest\x12\x12'
    b'\n\x04name\x18\x01 \x01(\tR\x04name"a\n\x13Au'
    b'thUserGetResponse\x124\n\x06hea'
    b'der\x18\x01 \x01(\x0b2\x1c.etcdserverpb'
    b'.ResponseHeaderR\x06header\x12'
    b'\x14\n\x05roles\x18\x02 \x03(\tR\x05roles"\x15\n'
    b'\x13AuthUserListRequest"b\n\x14'
    b'AuthUserListResponse\x124\n\x06'
    b'header\x18\x01 \x01(\x0b2\x1c.etcdserve'
    b'rpb.ResponseHeaderR\x06head'
    b'er\x12\x14\n\x05users\x18\x02 \x03(\tR\x05users'
    b'"+\n\x15AuthUserDeleteReques'
    b't\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"N\n'
    b'\x16AuthUserDeleteResponse\x12'
    b'4\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdse'
    b'rverpb.ResponseHeaderR\x06h'
    b'eader"w\n\x1dAuthUserChangeP'
    b'asswordRequest\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x1a\n\x08password\x18\x02'
    b' \x01(\tR\x08password\x12&\n\x0ehashed'
    b'Password\x18\x03 \x01(\tR\x0ehashedPa'
    b'ssword"V\n\x1eAuthUserChange'
    b'PasswordResponse\x124\n\x06head'
    b'er\x18\x01 \x01(\x0b2\x1c.etcdserverpb.'
    b'ResponseHeaderR\x06header"B'
    b'\n\x18AuthUserGrantRoleReque'
    b'st\x12\x12\n\x04user\x18\x01 \x01(\tR\x04user\x12\x12'
    b'\n\x04role\x18\x02 \x01(\tR\x04role"Q\n\x19Au'
    b'thUserGrantRoleResponse\x12'
    b'4\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdse'
    b'rverpb.ResponseHeaderR\x06h'
    b'eader"C\n\x19AuthUserRevokeR'
    b'oleRequest\x12\x12\n\x04name\x18\x01 \x01(\t'
    b'R\x04name\x12\x12\n\x04role\x18\x02 \x01(\tR\x04ro'
    b'le"R\n\x1aAuthUserRevokeRole'
    b'Response\x124\n\x06header\x18\x01 \x01(\x0b'
    b'2\x1c.etcdserverpb.Response'
    b'HeaderR\x06header"(\n\x12AuthRo'
    b'leAddRequest\x12\x12\n\x04name\x18\x01 \x01'
    b'(\tR\x04name"K\n\x13AuthRoleAddR'
    b'esponse\x124\n\x06header\x18\x01 \x01(\x0b2'
    b'\x1c.etcdserverpb.ResponseH'
    b'eaderR\x06header"(\n\x12AuthRol'
    b'eGetRequest\x12\x12\n\x04role\x18\x01 \x01('
    b'\tR\x04role"s\n\x13AuthRoleGetRe'
    b'sponse\x124\n\x06header\x18\x01 \x01(\x0b2\x1c'
    b'.etcdserverpb.ResponseHe'
    b'aderR\x06header\x12&\n\x04perm\x18\x02 \x03'
    b'(\x0b2\x12.authpb.PermissionR\x04'
    b'perm"\x15\n\x13AuthRoleListRequ'
    b'est"b\n\x14AuthRoleListRespo'
    b'nse\x124\n\x06header\x18\x01 \x01(\x0b2\x1c.et'
    b'cdserverpb.ResponseHeade'
    b'rR\x06header\x12\x14\n\x05roles\x18\x02 \x03(\t'
    b'R\x05roles"+\n\x15AuthRoleDelet'
    b'eRequest\x12\x12\n\x04role\x18\x01 \x01(\tR\x04'
    b'role"N\n\x16AuthRoleDeleteRe'
    b'sponse\x124\n\x06header\x18\x01 \x01(\x0b2\x1c'
    b'.etcdserverpb.ResponseHe'
    b'aderR\x06header"\\\n\x1eAuthRole'
    b'GrantPermissionRequest\x12\x12'
    b'\n\x04name\x18\x01 \x01(\tR\x04name\x12&\n\x04pe'
    b'rm\x18\x02 \x01(\x0b2\x12.authpb.Permis'
    b'sionR\x04perm"W\n\x1fAuthRoleGr'
    b'antPermissionResponse\x124\n'
    b'\x06header\x18\x01 \x01(\x0b2\x1c.etcdserv'
    b'erpb.ResponseHeaderR\x06hea'
    b'der"d\n\x1fAuthRoleRevokePer'
    b'missionRequest\x12\x12\n\x04role\x18\x01'
    b' \x01(\tR\x04role\x12\x10\n\x03key\x18\x02 \x01(\x0cR'
    b'\x03key\x12\x1b\n\trange_end\x18\x03 \x01(\x0cR'
    b'\x08rangeEnd"X\n AuthRoleRev'
    b'okePermissionResponse\x124\n'
    b'\x06header\x18\x01 \x01(\x0b2\x1c.etcdserv'
    b'erpb.ResponseHeaderR\x06hea'
    b'der2\x8e\x0c\n\x04Auth\x12O\n\nAuthEnab'
    b'le\x12\x1f.etcdserverpb.AuthEn'
    b'ableRequest\x1a .etcdserver'
    b'pb.AuthEnableResponse\x12R\n'
    b'\x0bAuthDisable\x12 .etcdserve'
    b'rpb.AuthDisableRequest\x1a!'
    b'.etcdserverpb.AuthDisabl'
    b'eResponse\x12O\n\nAuthStatus\x12'
    b'\x1f.etcdserverpb.AuthStatu'
    b'sRequest\x1a .etcdserverpb.'
    b'AuthStatusResponse\x12U\n\x0cAu'
    b'thenticate\x12!.etcdserverp'
    b'b.AuthenticateRequest\x1a".'
    b'etcdserverpb.Authenticat'
    b'eResponse\x12N\n\x07UserAdd\x12 .e'
    b'tcdserverpb.AuthUserAddR'
    b'equest\x1a!.etcdserverpb.Au'
    b'thUserAddResponse\x12N\n\x07Use'
    b'rGet\x12 .etcdserverpb.Auth'
    b'UserGetRequest\x1a!.etcdser'
    b'verpb.AuthUserGetRespons'
    b'e\x12Q\n\x08UserList\x12!.etcdserv'
    b'erpb.AuthUserListRequest'
    b'\x1a".etcdserverpb.AuthUser'
    b'ListResponse\x12W\n\nUserDele'
    b'te\x12#.etcdserverpb.AuthUs'
    b'erDeleteRequest\x1a$.etcdse'
    b'rverpb.AuthUserDeleteRes'
    b'ponse\x12o\n\x12UserChangePassw'
    b'ord\x12+.etcdserverpb.AuthU'
    b'serChangePasswordRequest'
    b'\x1a,.etcdserverpb.AuthUser'
    b'ChangePasswordResponse\x12`'
    b'\n\rUserGrantRole\x12&.etcdse'
    b'rverpb.AuthUserGrantRole'
    b"Request\x1a'.etcdserverpb.A"
    b'uthUserGrantRoleResponse'
    b"\x12c\n\x0eUserRevokeRole\x12'.etc"
    b'dserverpb.AuthUserRevoke'
    b'RoleRequest\x1a(.etcdserver'
    b'pb.AuthUserRevokeRoleRes'
    b'ponse\x12N\n\x07RoleAdd\x12 .etcds'
    b'erverpb.AuthRoleAddReque'
    b'st\x1a!.etcdserverpb.AuthRo'
    b'leAddResponse\x12N\n\x07RoleGet'
    b'\x12 .etcdserverpb.AuthRole'
    b'GetRequest\x1a!.etcdserverp'
    b'b.AuthRoleGetResponse\x12Q\n'
    b'\x08RoleList\x12!.etcdserverpb'
    b'.AuthRoleListRequest\x1a".e'
    b'tcdserverpb.AuthRoleList'
    b'Response\x12W\n\nRoleDelete\x12#'
    b'.etcdserverpb.AuthRoleDe'
    b'leteRequest\x1a$.etcdserver'
    b'pb.AuthRoleDeleteRespons'
    b'e\x12r\n\x13RoleGrantPermission'
    b'\x12,.etcdserverpb.AuthRole'
    b'GrantPermissionRequest\x1a-'
    b'.etcdserverpb.AuthRoleGr'
    b'antPermissionResponse\x12u\n'
    b'\x14RoleRevokePermission\x12-.'
    b'etcdserverpb.AuthRoleRev'
    b'okePermissionRequest\x1a..e'
    b'tcdserverpb.AuthRoleRevo'
    b'kePermissionResponseb\x06pr'
    b'oto3'
)

AuthEnableRequest = message_class(DESCRIPTOR, "AuthEnableRequest")
AuthEnableResponse = message_class(DESCRIPTOR, "AuthEnableResponse")
AuthDisableRequest = message_class(DESCRIPTOR, "AuthDisableRequest")
AuthDisableResponse = message_class(DESCRIPTOR, "AuthDisableResponse")
AuthStatusRequest = message_class(DESCRIPTOR, "AuthStatusRequest")
AuthStatusResponse = message_class(DESCRIPTOR, "AuthStatusResponse")
AuthenticateRequest = message_class(DESCRIPTOR, "AuthenticateRequest")
AuthenticateResponse = message_class(DESCRIPTOR, "AuthenticateResponse")
AuthUserAddRequest = message_class(DESCRIPTOR, "AuthUserAddRequest")
AuthUserAddResponse = message_class(DESCRIPTOR, "AuthUserAddResponse")
AuthUserGetRequest = message_class(DESCRIPTOR, "AuthUserGetRequest")
AuthUserGetResponse = message_class(DESCRIPTOR, "AuthUserGetResponse")
AuthUserListRequest = message_class(DESCRIPTOR, "AuthUserListRequest")
AuthUserListResponse = message_class(DESCRIPTOR, "AuthUserListResponse")
AuthUserDeleteRequest = message_class(DESCRIPTOR, "AuthUserDeleteRequest")
AuthUserDeleteResponse = message_class(DESCRIPTOR, "AuthUserDeleteResponse")
AuthUserChangePasswordRequest = message_class(DESCRIPTOR, "AuthUserChangePasswordRequest")
AuthUserChangePasswordResponse = message_class(DESCRIPTOR, "AuthUserChangePasswordResponse")
AuthUserGrantRoleRequest = message_class(DESCRIPTOR, "AuthUserGrantRoleRequest")
AuthUserGrantRoleResponse = message_class(DESCRIPTOR, "AuthUserGrantRoleResponse")
AuthUserRevokeRoleRequest = message_class(DESCRIPTOR, "AuthUserRevokeRoleRequest")
AuthUserRevokeRoleResponse = message_class(DESCRIPTOR, "AuthUserRevokeRoleResponse")
AuthRoleAddRequest = message_class(DESCRIPTOR, "AuthRoleAddRequest")
AuthRoleAddResponse = message_class(DESCRIPTOR, "AuthRoleAddResponse")
AuthRoleGetRequest = message_class(DESCRIPTOR, "AuthRoleGetRequest")
AuthRoleGetResponse = message_class(DESCRIPTOR, "AuthRoleGetResponse")
AuthRoleListRequest = message_class(DESCRIPTOR, "AuthRoleListRequest")
AuthRoleListResponse = message_class(DESCRIPTOR, "AuthRoleListResponse")
AuthRoleDeleteRequest = message_class(DESCRIPTOR, "AuthRoleDeleteRequest")
AuthRoleDeleteResponse = message_class(DESCRIPTOR, "AuthRoleDeleteResponse")
AuthRoleGrantPermissionRequest = message_class(DESCRIPTOR, "AuthRoleGrantPermissionRequest")
AuthRoleGrantPermissionResponse = message_class(DESCRIPTOR, "AuthRoleGrantPermissionResponse")
AuthRoleRevokePermissionRequest = message_class(DESCRIPTOR, "AuthRoleRevokePermissionRequest")
AuthRoleRevokePermissionResponse = message_class(DESCRIPTOR, "AuthRoleRevokePermissionResponse")
