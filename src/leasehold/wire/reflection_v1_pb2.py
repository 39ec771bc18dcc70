# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/reflection_v1.proto: change that one.
"""Messages of `reflection_v1.proto`, in the private descriptor pool."""

from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x13reflection_v1.proto\x12\x12g'
    b'rpc.reflection.v1"\xf3\x02\n\x17Se'
    b'rverReflectionRequest\x12\x12\n'
    b'\x04host\x18\x01 \x01(\tR\x04host\x12*\n\x10fil'
    b'e_by_filename\x18\x03 \x01(\tH\x00R\x0ef'
    b'ileByFilename\x126\n\x16file_co'
    b'ntaining_symbol\x18\x04 \x01(\tH\x00R'
    b'\x14fileContainingSymbol\x12b\n'
    b'\x19file_containing_extensi'
    b'on\x18\x05 \x01(\x0b2$.grpc.reflecti'
    b'on.v1.ExtensionRequestH\x00'
    b'R\x17fileContainingExtensio'
    b'n\x12B\n\x1dall_extension_numbe'
    b'rs_of_type\x18\x06 \x01(\tH\x00R\x19allE'
    b'xtensionNumbersOfType\x12%\n'
    b'\rlist_services\x18\x07 \x01(\tH\x00R\x0c'
    b'listServicesB\x11\n\x0fmessage_'
    b'request"f\n\x10ExtensionRequ'
    b"est\x12'\n\x0fcontaining_type\x18\x01"
    b' \x01(\tR\x0econtainingType\x12)\n\x10'
    b'extension_number\x18\x02 \x01(\x05R\x0f'
    b'extensionNumber"\xae\x04\n\x18Serv'
    b'erReflectionResponse\x12\x1d\n\n'
    b'valid_host\x18\x01 \x01(\tR\tvalidH'
    b'ost\x12V\n\x10original_request\x18'
    b'\x02 \x01(\x0b2+.grpc.reflection.'
    b'v1.ServerReflectionReque'
    b'stR\x0foriginalRequest\x12f\n\x18f'
    b'ile_descriptor_response\x18'
    b'\x04 \x01(\x0b2*.grpc.reflection.'
    b'v1.FileDescriptorRespons'
    b'eH\x00R\x16fileDescriptorRespo'
    b'nse\x12r\n\x1eall_extension_num'
    b'bers_response\x18\x05 \x01(\x0b2+.gr'
    b'pc.reflection.v1.Extensi'
    b'onNumberResponseH\x00R\x1ballE'
    b'xtensionNumbersResponse\x12'
    b'_\n\x16list_services_respons'
    b"e\x18\x06 \x01(\x0b2'.grpc.reflectio"
    b'n.v1.ListServiceResponse'
    b'H\x00R\x14listServicesResponse'
    b'\x12J\n\x0eerror_response\x18\x07 \x01(\x0b'
    b'2!.grpc.reflection.v1.Er'
    b'rorResponseH\x00R\rerrorResp'
    b'onseB\x12\n\x10message_response'
    b'"L\n\x16FileDescriptorRespon'
    b'se\x122\n\x15file_descriptor_pr'
    b'oto\x18\x01 \x03(\x0cR\x13fileDescripto'
    b'rProto"j\n\x17ExtensionNumbe'
    b'rResponse\x12$\n\x0ebase_type_n'
    b'ame\x18\x01 \x01(\tR\x0cbaseTypeName\x12'
    b')\n\x10extension_number\x18\x02 \x03('
    b'\x05R\x0fextensionNumber"T\n\x13Li'
    b'stServiceResponse\x12=\n\x07ser'
    b'vice\x18\x01 \x03(\x0b2#.grpc.reflec'
    b'tion.v1.ServiceResponseR'
    b'\x07service"%\n\x0fServiceRespo'
    b'nse\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"'
    b'S\n\rErrorResponse\x12\x1d\n\nerro'
    b'r_code\x18\x01 \x01(\x05R\terrorCode\x12'
    b'#\n\rerror_message\x18\x02 \x01(\tR\x0c'
    b'errorMessage2\x89\x01\n\x10ServerR'
    b'eflection\x12u\n\x14ServerRefle'
    b'ctionInfo\x12+.grpc.reflect'
    b'ion.v1.ServerReflectionR'
    b'equest\x1a,.grpc.reflection'
    b'.v1.ServerReflectionResp'
    b'onse(\x010\x01b\x06proto3'
)

ServerReflectionRequest = message_class(DESCRIPTOR, "ServerReflectionRequest")
ExtensionRequest = message_class(DESCRIPTOR, "ExtensionRequest")
ServerReflectionResponse = message_class(DESCRIPTOR, "ServerReflectionResponse")
FileDescriptorResponse = message_class(DESCRIPTOR, "FileDescriptorResponse")
ExtensionNumberResponse = message_class(DESCRIPTOR, "ExtensionNumberResponse")
ListServiceResponse = message_class(DESCRIPTOR, "ListServiceResponse")
ServiceResponse = message_class(DESCRIPTOR, "ServiceResponse")
ErrorResponse = message_class(DESCRIPTOR, "ErrorResponse")
