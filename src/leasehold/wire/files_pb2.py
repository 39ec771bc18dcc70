# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/files.proto: change that one.
"""Messages of `files.proto`, in the private descriptor pool."""

from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0bfiles.proto\x12\x0cleasehold'
    b'.v1"\x9b\x02\n\x0bFilesConfig\x12/\n\x06s'
    b'tores\x18\x01 \x03(\x0b2\x17.leasehold.'
    b'v1.FileStoreR\x06stores\x12\x1a\n\x08'
    b'replicas\x18\x02 \x01(\x05R\x08replicas'
    b'\x12!\n\x0cmin_replicas\x18\x03 \x01(\x05R\x0b'
    b'minReplicas\x12"\n\rsoft_limi'
    b't_ms\x18\x04 \x01(\x03R\x0bsoftLimitMs\x12'
    b'"\n\rhard_limit_ms\x18\x05 \x01(\x03R\x0b'
    b'hardLimitMs\x12\x17\n\x07keep_ms\x18\x06'
    b' \x01(\x03R\x06keepMs\x12\x1f\n\x0bblock_by'
    b'tes\x18\x07 \x01(\x03R\nblockBytes\x12\x1a\n'
    b'\x08keyspace\x18\x08 \x01(\tR\x08keyspac'
    b'e"L\n\tFileStore\x12\x0e\n\x02id\x18\x01 \x01'
    b'(\tR\x02id\x12\x10\n\x03url\x18\x02 \x01(\tR\x03url'
    b'\x12\x1d\n\nis_leaving\x18\x03 \x01(\x08R\tis'
    b'Leaving"\x8d\x03\n\nFileRecord\x12\x16'
    b'\n\x06parent\x18\x01 \x01(\tR\x06parent\x12\x12'
    b'\n\x04name\x18\x02 \x01(\tR\x04name\x12!\n\x0cis'
    b'_directory\x18\x03 \x01(\x08R\x0bisDire'
    b'ctory\x12\x14\n\x05state\x18\x04 \x01(\x05R\x05st'
    b'ate\x12\x16\n\x06holder\x18\x05 \x01(\tR\x06hol'
    b"der\x12'\n\x0fholder_revision\x18\x06"
    b' \x01(\x03R\x0eholderRevision\x12\x14\n\x05'
    b'stamp\x18\x07 \x01(\x03R\x05stamp\x12\x16\n\x06bl'
    b'ocks\x18\x08 \x01(\x03R\x06blocks\x12\x16\n\x06le'
    b'ngth\x18\t \x01(\x03R\x06length\x12\x1a\n\x08pi'
    b'peline\x18\n \x03(\tR\x08pipeline\x12\x1d'
    b'\n\ncreated_ms\x18\r \x01(\x03R\tcrea'
    b'tedMs\x12\x1f\n\x0bmodified_ms\x18\x0e \x01'
    b'(\x03R\nmodifiedMs\x12\x0e\n\x02op\x18\x0f \x01'
    b'(\tR\x02op\x12\x1b\n\trename_op\x18\x10 \x01('
    b'\tR\x08renameOpJ\x04\x08\x0b\x10\x0cJ\x04\x08\x0c\x10\r"'
    b'\x9f\x01\n\tFileBlock\x12\x14\n\x05stamp\x18\x01'
    b' \x01(\x03R\x05stamp\x12\x16\n\x06length\x18\x02 '
    b'\x01(\x03R\x06length\x12\x1c\n\tchecksums'
    b'\x18\x03 \x01(\x0cR\tchecksums\x126\n\x08rep'
    b'licas\x18\x04 \x03(\x0b2\x1a.leasehold.'
    b'v1.BlockReplicaR\x08replica'
    b's\x12\x0e\n\x02op\x18\x05 \x01(\tR\x02op"P\n\x0cBlo'
    b'ckReplica\x12\x14\n\x05store\x18\x01 \x01(\t'
    b'R\x05store\x12\x12\n\x04name\x18\x02 \x01(\tR\x04n'
    b'ame\x12\x16\n\x06pieces\x18\x03 \x03(\x03R\x06pie'
    b'ces"\xb0\x01\n\x0cFileRecovery\x12\x12\n\x04'
    b'path\x18\x01 \x01(\tR\x04path\x12\x1a\n\x08atte'
    b'mpts\x18\x02 \x01(\x03R\x08attempts\x12\x1d\n\n'
    b'last_error\x18\x03 \x01(\tR\tlastEr'
    b'ror\x12\x19\n\x08begun_ms\x18\x04 \x01(\x03R\x07b'
    b'egunMs\x12\x19\n\x08retry_ms\x18\x05 \x01(\x03'
    b'R\x07retryMs\x12\x1b\n\tis_locked\x18\x06'
    b' \x01(\x08R\x08isLocked"\x99\x01\n\tFileT'
    b'rash\x12\x19\n\x08since_ms\x18\x01 \x01(\x03R\x07'
    b'sinceMs\x12!\n\x0cis_directory\x18'
    b'\x02 \x01(\x08R\x0bisDirectory\x126\n\x08re'
    b'plicas\x18\x03 \x03(\x0b2\x1a.leasehold'
    b'.v1.BlockReplicaR\x08replic'
    b'as\x12\x16\n\x06length\x18\x04 \x01(\x03R\x06leng'
    b'thb\x06proto3'
)

FilesConfig = message_class(DESCRIPTOR, "FilesConfig")
FileStore = message_class(DESCRIPTOR, "FileStore")
FileRecord = message_class(DESCRIPTOR, "FileRecord")
FileBlock = message_class(DESCRIPTOR, "FileBlock")
BlockReplica = message_class(DESCRIPTOR, "BlockReplica")
FileRecovery = message_class(DESCRIPTOR, "FileRecovery")
FileTrash = message_class(DESCRIPTOR, "FileTrash")
