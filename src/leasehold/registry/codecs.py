"""Python classes and values as types, attributes and descriptors of items, and back.

A descriptor has the name of its type and its encoded value; nothing is pickled. A program registers
the classes that it uses, and only these are decoded: no name that arrives is ever imported.

    @register_type(name="example.Printer")
    @dataclass(frozen=True)
    class Printer:
        queue: str

    item = service_item(Printer("colour"), endpoint="10.0.0.7:631")
    wanted = service_template(types=[Printer])

Dataclasses are encoded as JSON objects of their fields, protobuf messages in their own format, and
any other class by the two functions that it is registered with.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast, overload

from google.protobuf.message import DecodeError, Message

from leasehold.registry.messages import (
    MAX_ENDPOINT,
    check_item_id,
    item_message,
    item_of,
    template_message,
    template_of,
)
from leasehold.registry.state import (
    AttributeSet,
    Descriptor,
    Health,
    Item,
    ServiceType,
    Template,
    attribute_set,
    canonical,
)

C = TypeVar("C", bound=type[Any])
V = TypeVar("V")

Encode: TypeAlias = Callable[[Any], bytes]
Decode: TypeAlias = Callable[[bytes], Any]

TypeLike: TypeAlias = str | type[Any] | ServiceType
"""A type of services: its name, or a class, whose base classes are base types."""

AttributesLike: TypeAlias = AttributeSet | object
"""Attributes: an attribute set, or an instance of a dataclass."""

JSON: Final = "json"
PROTOBUF: Final = "protobuf"
CUSTOM: Final = "custom"

_NOT_TYPES: Final = frozenset({"builtins", "typing", "abc"})
"""Modules whose classes are bases in Python only, such as `object` and `Protocol`."""


class DescriptorCodec(NamedTuple):
    """How the values of a class are encoded."""

    kind: type[Any]
    name: str
    encoding: str
    encode: Encode
    decode: Decode


_BY_NAME: Final[dict[str, DescriptorCodec]] = {}
_BY_CLASS: Final[dict[type[Any], DescriptorCodec]] = {}
_NAMES: Final[dict[type[Any], str]] = {}
"""Names of classes that are types or kinds, and need not have values that are encoded."""


@overload
def register_type(kind: C, name: str | None = None) -> C: ...
@overload
def register_type(
    kind: C, name: str | None = None, *, encode: Encode, decode: Decode, encoding: str = CUSTOM
) -> C: ...
@overload
def register_type(
    kind: None = None,
    name: str | None = None,
    *,
    encode: Encode | None = None,
    decode: Decode | None = None,
    encoding: str = CUSTOM,
) -> Callable[[C], C]: ...


def register_type(
    kind: Any = None,
    name: str | None = None,
    *,
    encode: Encode | None = None,
    decode: Decode | None = None,
    encoding: str = CUSTOM,
) -> Any:
    """Register a class under a name, by default its module and qualified name; also a decorator.

    With a dataclass or a protobuf message, or with `encode` and `decode`, its values can be
    descriptors. Any other class can only be the type of a service. `decode` must raise ValueError
    for bytes that it cannot decode. Raises ValueError if the name is another class's.
    """
    if kind is None:
        return lambda decorated: register_type(
            decorated,
            name,
            encode=cast("Encode", encode),
            decode=cast("Decode", decode),
            encoding=encoding,
        )
    if not isinstance(kind, type):
        raise TypeError(f"kind must be a class, not {kind!r}")
    if (encode is None) is not (decode is None):
        raise TypeError("encode and decode must be given together")
    chosen = _default_name(kind) if name is None else name
    if not chosen:
        raise ValueError("name of a type must not be empty")
    for known, taken in _NAMES.items():
        if taken == chosen and known is not kind:
            raise ValueError(f"name {chosen!r} is already used by class {known.__qualname__}")
    codec = _codec(kind, chosen, encode, decode, encoding)
    former = _BY_CLASS.pop(kind, None)
    if former is not None:
        del _BY_NAME[former.name]
    _NAMES[kind] = chosen
    if codec is not None:
        _BY_NAME[chosen] = _BY_CLASS[kind] = codec
    return kind


def _codec(
    kind: type[Any], name: str, encode: Encode | None, decode: Decode | None, encoding: str
) -> DescriptorCodec | None:
    if encode is not None and decode is not None:
        return DescriptorCodec(kind, name, encoding, encode, decode)
    if issubclass(kind, Message):

        def parse(data: bytes) -> Any:
            try:
                return kind.FromString(data)
            except DecodeError as error:
                raise ValueError(str(error)) from None

        return DescriptorCodec(
            kind, name, PROTOBUF, lambda value: value.SerializeToString(deterministic=True), parse
        )
    if dataclasses.is_dataclass(kind):
        return DescriptorCodec(
            kind, name, JSON, _encode_fields, lambda data: _decode_fields(kind, data)
        )
    return None


def _default_name(kind: type[Any]) -> str:
    if issubclass(kind, Message) and kind is not Message:
        return str(kind.DESCRIPTOR.full_name)
    return f"{kind.__module__}.{kind.__qualname__}"


def _encode_fields(value: Any) -> bytes:
    fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    try:
        return canonical(fields).encode()
    except ValueError as error:
        raise ValueError(
            f"fields of {type(value).__qualname__} must be JSON values, or register it with "
            f"encode and decode: {error}"
        ) from None


def _decode_fields(kind: type[Any], data: bytes) -> Any:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"fields must be a JSON object: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"fields must be a JSON object, got {type(fields).__name__}")
    # A later version of the class may have further fields.
    wanted = [each.name for each in dataclasses.fields(kind) if each.init and each.name in fields]
    try:
        return kind(**{name: fields[name] for name in wanted})
    except TypeError as error:
        raise ValueError(str(error)) from None


# Descriptors.


def describe(value: Any) -> Descriptor:
    """Return the descriptor of a value. Raises TypeError if its class is not registered."""
    if isinstance(value, Descriptor):
        return value
    codec = _BY_CLASS.get(type(value))
    if codec is None:
        raise TypeError(
            f"class {type(value).__qualname__} is not registered for descriptors: use "
            "register_type with a dataclass, a protobuf message, or encode and decode"
        )
    data = codec.encode(value)
    if not isinstance(data, bytes):
        raise TypeError(f"encode of {codec.name!r} must return bytes, not {data!r}")
    return Descriptor(codec.name, codec.encoding, data)


def decode_descriptor(descriptor: Descriptor) -> Any:
    """Return the value of a descriptor.

    Raises ValueError if its type is not registered in this process, or if it cannot be decoded.
    """
    codec = _BY_NAME.get(descriptor.type)
    if codec is None:
        raise ValueError(
            f"descriptor type {descriptor.type!r} is not registered in this process: import the "
            "module that calls register_type for it"
        )
    if codec.encoding != descriptor.encoding:
        raise ValueError(
            f"descriptor of type {descriptor.type!r} must be encoded as {codec.encoding!r}, got "
            f"{descriptor.encoding!r}"
        )
    try:
        return codec.decode(descriptor.data)
    except ValueError as error:
        raise ValueError(
            f"descriptor of type {descriptor.type!r} cannot be decoded: {error}"
        ) from error


# Types and attributes.


def type_name(kind: TypeLike) -> str:
    """Return the name of a type or kind: that which a class was registered with, or its own."""
    match kind:
        case ServiceType():
            return kind.name
        case str():
            return kind
        case type():
            return _NAMES.get(kind) or _default_name(kind)
    raise TypeError(f"a type must be a class or a name, not {kind!r}")


def service_type(kind: TypeLike) -> ServiceType:
    """Return a type with the names of all its base types."""
    if isinstance(kind, ServiceType):
        return kind
    return ServiceType(type_name(kind), tuple(map(type_name, _bases(kind))))


def all_types(kinds: Iterable[TypeLike]) -> tuple[ServiceType, ...]:
    """Return types, and each of their base types as a type of its own, without duplicates."""
    found: dict[str, ServiceType] = {}
    for kind in kinds:
        for each in (kind, *_bases(kind)):
            made = service_type(each)
            found.setdefault(made.name, made)
    return tuple(found.values())


def _bases(kind: TypeLike) -> tuple[type[Any], ...]:
    if not isinstance(kind, type):
        return ()
    return tuple(
        each
        for each in kind.__mro__[1:]
        if each.__module__ not in _NOT_TYPES and each is not Message
    )


def attributes_of(value: AttributesLike) -> AttributeSet:
    """Return the attribute set of an instance of a dataclass: its fields, except those of None.

    The class is the kind, and its base classes are base kinds. An attribute set is returned
    unchanged.
    """
    if isinstance(value, AttributeSet):
        return value
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise TypeError(
            f"attributes must be an attribute set or an instance of a dataclass, not {value!r}"
        )
    fields: Mapping[str, Any] = {
        each.name: getattr(value, each.name) for each in dataclasses.fields(value)
    }
    kind = type(value)
    return attribute_set(type_name(kind), fields, map(type_name, _bases(kind)))


def all_attributes(values: Iterable[AttributesLike]) -> tuple[AttributeSet, ...]:
    """Return several attribute sets. Raises TypeError if it is one, or has other values."""
    return tuple(map(attributes_of, check_several(values, "attributes")))


def check_several(values: V, name: str) -> V:
    """Return attribute sets. Raises TypeError if it is one, or not a sequence of them."""
    if isinstance(values, AttributeSet | str | bytes | Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a sequence of attribute sets, not {values!r}")
    return values


def check_health(health: Health) -> Health:
    """Return a health; TypeError if it is not one."""
    if not isinstance(health, Health):
        raise TypeError(f"health must be a Health, such as Health.FAILING, not {health!r}")
    return health


def _each_type(types: Iterable[TypeLike]) -> Iterable[TypeLike]:
    if isinstance(types, str | type | ServiceType):
        raise TypeError(f"types must be a sequence of classes or names, not {types!r}")
    return types


# Items and templates.


def service_item(
    service: Any = None,
    *,
    id: str = "",  # noqa: A002  the name of the attribute
    types: Iterable[TypeLike] | None = None,
    attributes: Iterable[AttributesLike] = (),
    endpoint: str = "",
    health: Health = Health.PASSING,
) -> Item:
    """Return an item to register.

    `service` is its descriptor, a value of a class that is registered. `types` are by default the
    class of it; base types are added. Without an `id` the registrar chooses one. Raises TypeError
    or ValueError for what a registrar would refuse.
    """
    if not isinstance(endpoint, str):
        raise TypeError(f"endpoint must be a str, not {endpoint!r}")
    if len(endpoint) > MAX_ENDPOINT:
        raise ValueError(
            f"endpoint must have at most {MAX_ENDPOINT:,} characters, got {len(endpoint):,}"
        )
    descriptor = None if service is None else describe(service)
    if types is None:
        has_class = service is not None and not isinstance(service, Descriptor)
        types = [type(service)] if has_class else []
    made = Item(
        _checked_id(id),
        all_types(_each_type(types)),
        all_attributes(attributes),
        endpoint,
        descriptor,
        check_health(health),
    )
    return item_of(item_message(made))  # which checks it


def service_template(
    *,
    id: str = "",  # noqa: A002  the name of the attribute
    types: Iterable[TypeLike] = (),
    attributes: Iterable[AttributesLike] = (),
) -> Template:
    """Return a template. An empty one matches everything."""
    made = Template(
        _checked_id(id), tuple(map(service_type, _each_type(types))), all_attributes(attributes)
    )
    return template_of(template_message(made))  # which checks it


def _checked_id(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"id must be a str, not {text!r}")
    return check_item_id(text) if text else ""
