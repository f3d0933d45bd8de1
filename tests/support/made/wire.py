"""Protocol buffers, written byte by byte."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """A whole number; one below 0 as the unsigned 64-bit one that wraps around to it."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(field_number: int, value: int) -> bytes:
    """A field that is a number."""
    return varint(field_number << 3) + varint(value)


def block(field_number: int, value: bytes | str) -> bytes:
    """A field that is a text, bytes or a message."""
    content = value.encode() if isinstance(value, str) else value
    return varint(field_number << 3 | 2) + varint(len(content)) + content
