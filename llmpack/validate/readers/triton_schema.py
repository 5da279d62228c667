"""Triton's `ModelConfig` for the protobuf library, built from a table of its fields.

The published classes come with gRPC, which reading a text file does not need.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
    from google.protobuf.message import Message

_PACKAGE = "llmpack.triton"
_MAP = re.compile(r"map<(\w+), (\w+)>")


def find_syntax_error(text: str) -> tuple[str, int, int] | None:
    """What Triton's parser refuses in `text`, if anything: the message, line and column, both from 1."""
    from google.protobuf import text_format

    try:
        text_format.Parse(text, _config_class()())
    except text_format.ParseError as error:
        message = re.sub(r"^\d+:\d+ : ", "", str(error)).replace(f"{_PACKAGE}.", "")
        return message, error.GetLine() or 1, error.GetColumn() or 1
    except RecursionError:
        return "Nested too deeply", 1, 1
    return None


def known_fields(message: str = "ModelConfig") -> frozenset[str]:
    """Names of the fields of `message`."""
    return frozenset(name for name, *_ in _table()["messages"][message])


@cache
def _table() -> dict[str, Any]:
    content = resources.files("llmpack.validate.readers").joinpath("model_config.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(content)
    return table


@cache
def _config_class() -> type[Message]:
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="llmpack/triton/model_config.proto", package=_PACKAGE, syntax="proto3")
    for enum_name, values in _table()["enums"].items():
        enum = file.enum_type.add(name=enum_name)
        for name, number in values.items():
            enum.value.add(name=name, number=number)
    for message_name, fields in _table()["messages"].items():
        message = file.message_type.add(name=message_name)
        for name, number, type_name, *oneof in fields:
            _add_field(message, name, type_name, oneof).number = number
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    config: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.ModelConfig"))
    return config


def _add_field(message: DescriptorProto, name: str, type_name: str, oneof: list[str]) -> FieldDescriptorProto:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    field = message.field.add(name=name, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if mapping := _MAP.fullmatch(type_name):
        entry_name = f"{name.title().replace('_', '')}Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        for number, (part, part_type) in enumerate(zip(("key", "value"), mapping.groups(), strict=True), start=1):
            _add_field(entry, part, part_type, []).number = number
        type_name = f"repeated {message.name}.{entry_name}"
    if type_name.startswith("repeated "):
        field.label = FieldDescriptorProto.LABEL_REPEATED
    _set_type(field, type_name.removeprefix("repeated "))
    if oneof:
        field.oneof_index = _oneof_index(message, oneof[0])
    return field


def _set_type(field: FieldDescriptorProto, type_name: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    scalar = f"TYPE_{type_name.upper()}"
    if scalar in set(FieldDescriptorProto.Type.keys()):
        field.type = FieldDescriptorProto.Type.Value(scalar)
        return
    is_enum = type_name in _table()["enums"]
    field.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{type_name}"


def _oneof_index(message: DescriptorProto, name: str) -> int:
    names = [oneof.name for oneof in message.oneof_decl]
    if name not in names:
        message.oneof_decl.add(name=name)
        names.append(name)
    return names.index(name)
