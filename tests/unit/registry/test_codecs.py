"""Classes and values as types, attributes and descriptors: what is encoded, and what is refused."""

import json
from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from leasehold.registry import codecs
from leasehold.registry.codecs import (
    attributes_of,
    decode_descriptor,
    describe,
    register_type,
    service_item,
    service_template,
    service_type,
    type_name,
)
from leasehold.registry.state import Descriptor, ServiceType, attribute_set
from leasehold.wire import events_pb2

HERE = __name__
ID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


@dataclass(frozen=True)
class Device:
    room: str | None = None


@dataclass(frozen=True)
class Printer(Device):
    pages: int = 0
    duplex: bool | None = None


@dataclass(frozen=True)
class Nested:
    inner: Any


class Prints(Protocol): ...


class Base(ABC):  # noqa: B024
    pass


class Left(Base):
    pass


class Right(Base):
    pass


class Both(Left, Right):
    pass


@pytest.fixture(autouse=True)
def _only_these() -> Iterator[None]:
    tables: list[Any] = [codecs._BY_NAME, codecs._BY_CLASS, codecs._NAMES]
    kept = [dict(each) for each in tables]
    yield
    for table, before in zip(tables, kept, strict=True):
        table.clear()
        table.update(before)


# Descriptors.


def test_a_dataclass_is_encoded_as_json_and_decoded() -> None:
    register_type(Printer)
    made = describe(Printer("cellar", 3))
    assert made == Descriptor(
        f"{HERE}.Printer", "json", b'{"duplex":null,"pages":3,"room":"cellar"}'
    )
    assert decode_descriptor(made) == Printer("cellar", 3)


def test_equal_values_have_equal_descriptors() -> None:
    register_type(Nested)
    assert describe(Nested({"a": 1, "b": 2})) == describe(Nested({"b": 2, "a": 1}))
    assert describe(Nested(1)) != describe(Nested(1.0))
    assert describe(Nested(1)) != describe(Nested(True))


def test_a_decorator_registers_under_a_name() -> None:
    @register_type(name="example.Lamp")
    @dataclass
    class Lamp:
        watts: int

    assert describe(Lamp(5)).type == "example.Lamp"
    assert decode_descriptor(Descriptor("example.Lamp", "json", b'{"watts":7}')) == Lamp(7)


def test_a_protobuf_message_is_encoded_in_its_own_format() -> None:
    register_type(events_pb2.AcknowledgeRequest)
    value = events_pb2.AcknowledgeRequest(mailbox="m", position=3)
    made = describe(value)
    assert (made.type, made.encoding) == ("leasehold.v1.AcknowledgeRequest", "protobuf")
    assert decode_descriptor(made) == value
    with pytest.raises(ValueError, match="cannot be decoded"):
        decode_descriptor(Descriptor(made.type, "protobuf", b"\xff"))


def test_any_class_has_a_codec_of_its_own() -> None:
    register_type(complex, "example.Complex", encode=_encode_complex, decode=_decode_complex)
    assert decode_descriptor(describe(1 + 2j)) == 1 + 2j
    assert describe(1 + 2j).encoding == "custom"


def _encode_complex(value: complex) -> bytes:
    return json.dumps([value.real, value.imag]).encode()


def _decode_complex(data: bytes) -> complex:
    return complex(*json.loads(data))


def test_an_unknown_type_cannot_be_decoded_and_is_never_imported() -> None:
    with pytest.raises(
        ValueError, match=r"descriptor type 'os\.path' is not registered in this process"
    ):
        decode_descriptor(Descriptor("os.path", "json", b"{}"))
    with pytest.raises(ValueError, match="not registered"):  # the class exists here
        decode_descriptor(Descriptor(f"{HERE}.Device", "json", b"{}"))


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{", b"\xff", b"[" * 100_000])
def test_json_that_is_not_an_object_cannot_be_decoded(data: bytes) -> None:
    register_type(Printer)
    with pytest.raises(ValueError, match="cannot be decoded"):
        decode_descriptor(Descriptor(f"{HERE}.Printer", "json", data))


def test_fields_of_a_later_version_are_ignored_and_missing_ones_are_needed() -> None:
    register_type(Nested)
    assert decode_descriptor(
        Descriptor(f"{HERE}.Nested", "json", b'{"inner":1,"later":2}')
    ) == Nested(1)
    with pytest.raises(ValueError, match="inner"):
        decode_descriptor(Descriptor(f"{HERE}.Nested", "json", b"{}"))


def test_another_encoding_is_refused() -> None:
    register_type(Printer)
    with pytest.raises(ValueError, match="must be encoded as 'json', got 'pickle'"):
        decode_descriptor(Descriptor(f"{HERE}.Printer", "pickle", b"{}"))


def test_a_class_that_is_not_registered_cannot_be_described() -> None:
    with pytest.raises(TypeError, match="Printer is not registered"):
        describe(Printer())
    register_type(Left)  # a type of services, without values
    with pytest.raises(TypeError, match="Left is not registered for descriptors"):
        describe(Left())


def test_values_that_json_does_not_have_are_refused() -> None:
    register_type(Nested)
    for value in (object(), Printer(), float("nan"), {1, 2}):
        with pytest.raises(ValueError, match="must be JSON values"):
            describe(Nested(value))


def test_a_name_has_one_class() -> None:
    register_type(Printer, "example.Thing")
    register_type(Printer, "example.Thing")  # again is no change
    with pytest.raises(ValueError, match="already used by class Printer"):
        register_type(Device, "example.Thing")
    register_type(Printer, "example.Other")
    register_type(Device, "example.Thing")
    assert decode_descriptor(Descriptor("example.Thing", "json", b'{"room":"a"}')) == Device("a")


def test_arguments_of_register_type() -> None:
    with pytest.raises(TypeError, match="must be a class"):
        register_type(7)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="not be empty"):
        register_type(Printer, "")
    with pytest.raises(TypeError, match="together"):
        register_type(Printer, encode=_encode_complex)  # type: ignore[call-overload]


# Types and kinds.


def test_every_base_class_is_a_type_of_its_own_with_its_bases() -> None:
    register_type(Right, "example.Right")
    types = codecs.all_types([Both])
    left, base = f"{HERE}.Left", f"{HERE}.Base"
    assert types == (
        ServiceType(f"{HERE}.Both", (left, "example.Right", base)),
        ServiceType(left, (base,)),
        ServiceType("example.Right", (base,)),
        ServiceType(base),
    )


def test_names_are_types_without_bases() -> None:
    assert service_type("web") == ServiceType("web")
    assert codecs.all_types(["web", "web", Base]) == (
        ServiceType("web"),
        ServiceType(f"{HERE}.Base"),
    )
    assert service_type(Prints) == ServiceType(f"{HERE}.Prints")
    with pytest.raises(TypeError, match="a class or a name"):
        type_name(7)  # type: ignore[arg-type]


def test_attributes_of_a_dataclass_leave_out_fields_that_are_none() -> None:
    found = attributes_of(Printer(pages=3))
    assert found == attribute_set(f"{HERE}.Printer", {"pages": 3}, [f"{HERE}.Device"])
    assert found.matches(attributes_of(Device()))
    assert not found.matches(attributes_of(Device("cellar")))


@pytest.mark.parametrize("value", [Printer, {"a": 1}, 7, None])
def test_attributes_are_dataclass_instances_or_sets(value: Any) -> None:
    with pytest.raises(TypeError, match="attributes must be"):
        attributes_of(value)


# Items and templates.


def test_an_item_has_the_types_of_its_service() -> None:
    register_type(Printer)
    item = service_item(Printer("cellar"), endpoint="10.0.0.7:631", attributes=[Device("cellar")])
    assert item.type_names == {f"{HERE}.Printer", f"{HERE}.Device"}
    assert service_template(types=[Device]).matches(item)
    assert service_template(attributes=[Device("cellar")]).matches(item)
    assert not service_template(types=["web"]).matches(item)
    assert item.descriptor is not None
    assert decode_descriptor(item.descriptor) == Printer("cellar")


def test_an_item_may_have_types_of_its_own_and_no_service() -> None:
    item = service_item(id=ID.upper(), types=["web"])
    assert (item.id, set(item.type_names)) == (ID, {"web"})
    assert item.descriptor is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"id": 7},
        {"types": "web"},
        {"types": [7]},
        {"attributes": Device()},
        {"attributes": "web"},
        {"endpoint": 7},
    ],
)
def test_arguments_of_items_have_types(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        service_item(**arguments)
    if "endpoint" not in arguments:
        with pytest.raises(TypeError):
            service_template(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"id": "x"}, {"types": [""]}, {"types": ["x" * 257]}, {"endpoint": "x" * 2049}],
)
def test_what_a_registrar_would_refuse_is_refused_here(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        service_item(**arguments)


def test_an_item_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 262,144 bytes"):
        service_item(attributes=[attribute_set("k", {"f": "x" * 262_144})])
