# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/reflection_v1alpha.proto: change that one.
"""Messages of `reflection_v1alpha.proto`, in the private descriptor pool."""

from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x18reflection_v1alpha.pro'
    b'to\x12\x17grpc.reflection.v1al'
    b'pha"\xf8\x02\n\x17ServerReflection'
    b'Request\x12\x12\n\x04host\x18\x01 \x01(\tR\x04h'
    b'ost\x12*\n\x10file_by_filename\x18'
    b'\x03 \x01(\tH\x00R\x0efileByFilename\x12'
    b'6\n\x16file_containing_symbo'
    b'l\x18\x04 \x01(\tH\x00R\x14fileContainin'
    b'gSymbol\x12g\n\x19file_containi'
    b'ng_extension\x18\x05 \x01(\x0b2).grp'
    b'c.reflection.v1alpha.Ext'
    b'ensionRequestH\x00R\x17fileCon'
    b'tainingExtension\x12B\n\x1dall_'
    b'extension_numbers_of_typ'
    b'e\x18\x06 \x01(\tH\x00R\x19allExtensionN'
    b'umbersOfType\x12%\n\rlist_ser'
    b'vices\x18\x07 \x01(\tH\x00R\x0clistServi'
    b'cesB\x11\n\x0fmessage_request"f'
    b"\n\x10ExtensionRequest\x12'\n\x0fco"
    b'ntaining_type\x18\x01 \x01(\tR\x0econ'
    b'tainingType\x12)\n\x10extension'
    b'_number\x18\x02 \x01(\x05R\x0fextension'
    b'Number"\xc7\x04\n\x18ServerReflect'
    b'ionResponse\x12\x1d\n\nvalid_hos'
    b't\x18\x01 \x01(\tR\tvalidHost\x12[\n\x10or'
    b'iginal_request\x18\x02 \x01(\x0b20.g'
    b'rpc.reflection.v1alpha.S'
    b'erverReflectionRequestR\x0f'
    b'originalRequest\x12k\n\x18file_'
    b'descriptor_response\x18\x04 \x01('
    b'\x0b2/.grpc.reflection.v1al'
    b'pha.FileDescriptorRespon'
    b'seH\x00R\x16fileDescriptorResp'
    b'onse\x12w\n\x1eall_extension_nu'
    b'mbers_response\x18\x05 \x01(\x0b20.g'
    b'rpc.reflection.v1alpha.E'
    b'xtensionNumberResponseH\x00'
    b'R\x1ballExtensionNumbersRes'
    b'ponse\x12d\n\x16list_services_r'
    b'esponse\x18\x06 \x01(\x0b2,.grpc.ref'
    b'lection.v1alpha.ListServ'
    b'iceResponseH\x00R\x14listServi'
    b'cesResponse\x12O\n\x0eerror_res'
    b'ponse\x18\x07 \x01(\x0b2&.grpc.refle'
    b'ction.v1alpha.ErrorRespo'
    b'nseH\x00R\rerrorResponseB\x12\n\x10'
    b'message_response"L\n\x16File'
    b'DescriptorResponse\x122\n\x15fi'
    b'le_descriptor_proto\x18\x01 \x03('
    b'\x0cR\x13fileDescriptorProto"j'
    b'\n\x17ExtensionNumberRespons'
    b'e\x12$\n\x0ebase_type_name\x18\x01 \x01('
    b'\tR\x0cbaseTypeName\x12)\n\x10exten'
    b'sion_number\x18\x02 \x03(\x05R\x0fexten'
    b'sionNumber"Y\n\x13ListServic'
    b'eResponse\x12B\n\x07service\x18\x01 \x03'
    b'(\x0b2(.grpc.reflection.v1a'
    b'lpha.ServiceResponseR\x07se'
    b'rvice"%\n\x0fServiceResponse'
    b'\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"S\n\r'
    b'ErrorResponse\x12\x1d\n\nerror_c'
    b'ode\x18\x01 \x01(\x05R\terrorCode\x12#\n\r'
    b'error_message\x18\x02 \x01(\tR\x0cerr'
    b'orMessage2\x93\x01\n\x10ServerRefl'
    b'ection\x12\x7f\n\x14ServerReflecti'
    b'onInfo\x120.grpc.reflection'
    b'.v1alpha.ServerReflectio'
    b'nRequest\x1a1.grpc.reflecti'
    b'on.v1alpha.ServerReflect'
    b'ionResponse(\x010\x01b\x06proto3'
)

ServerReflectionRequest = message_class(DESCRIPTOR, "ServerReflectionRequest")
ExtensionRequest = message_class(DESCRIPTOR, "ExtensionRequest")
ServerReflectionResponse = message_class(DESCRIPTOR, "ServerReflectionResponse")
FileDescriptorResponse = message_class(DESCRIPTOR, "FileDescriptorResponse")
ExtensionNumberResponse = message_class(DESCRIPTOR, "ExtensionNumberResponse")
ListServiceResponse = message_class(DESCRIPTOR, "ListServiceResponse")
ServiceResponse = message_class(DESCRIPTOR, "ServiceResponse")
ErrorResponse = message_class(DESCRIPTOR, "ErrorResponse")
