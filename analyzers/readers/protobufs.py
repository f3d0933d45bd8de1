"""Classes for messages of protocol buffers, made of tables of their fields; needs the package protobuf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analyzers.common.errors import TracevizError

# Message -> field -> (number, type); of a type in brackets there are many, of one after "map" a number leads to each.
Messages = Mapping[str, Mapping[str, tuple[int, str]]]


def message_class(
    package: str, messages: Messages, root: str, choices: Mapping[str, tuple[str, ...]], without: tuple[str, str]
) -> Any:
    """The class of the message `root`; unknown fields are skipped when it is parsed.

    Parameters
    ----------
    choices : message -> fields of which it has one at most, by `WhichOneof("choice")`.
    without : what can't be read where protobuf is missing, and what to do then.
    """
    try:
        from google.protobuf import (  # type: ignore[import-untyped, unused-ignore]
            descriptor_pb2,
            descriptor_pool,
            message_factory,
        )
    except ImportError as error:
        what, hint = without
        raise TracevizError(f"Reading {what} needs the package protobuf.", hint=hint) from error
    types = descriptor_pb2.FieldDescriptorProto
    scalar = {name: getattr(types, f"TYPE_{name.upper()}") for name in _SCALARS}
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for message, fields in messages.items():
        made = file.message_type.add(name=message)
        if message in choices:
            made.oneof_decl.add(name="choice")
        for name, (number, kind) in fields.items():
            one = made.field.add(name=name, number=number, label=types.LABEL_OPTIONAL)
            if kind.startswith("map "):
                entry = made.nested_type.add(name="".join(map(str.capitalize, name.split("_"))) + "Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, type=types.TYPE_INT64, label=types.LABEL_OPTIONAL)
                value = entry.field.add(name="value", number=2, type=types.TYPE_MESSAGE, label=types.LABEL_OPTIONAL)
                value.type_name = f".{package}.{kind.removeprefix('map ')}"
                kind = f"[{message}.{entry.name}]"
            if kind.startswith("["):
                one.label, kind = types.LABEL_REPEATED, kind.strip("[]")
            one.type = scalar.get(kind, types.TYPE_MESSAGE)
            if kind not in scalar:
                one.type_name = f".{package}.{kind}"
            if name in choices.get(message, ()):
                one.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{root}"))


def parser(message: Any, what: str, path: Path, again: str) -> Callable[[bytes], Any]:
    """What makes messages of a class of bytes of a file, and raises a TracevizError where they are none.

    Parameters
    ----------
    what, again : what the file is, and what to do where it is damaged.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]

    def parse(content: bytes) -> Any:
        try:
            return message.FromString(content)
        except DecodeError as error:
            raise TracevizError(f"is a damaged or truncated {what} ({error}).", path=path, hint=again) from None

    return parse


_SCALARS = ("int32", "int64", "uint32", "uint64", "bool", "double", "string", "bytes")
