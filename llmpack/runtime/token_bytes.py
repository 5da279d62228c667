"""The two schemes by which a vocabulary entry spells bytes.

Source: GPT-2's `bytes_to_unicode` (byte-level BPE) and SentencePiece's byte fallback, as read by the `ByteLevel` and
`ByteFallback` decoders of the tokenizers library 0.23.
"""

from __future__ import annotations

import re

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_of_character() -> dict[str, int]:
    """Printable Latin-1 bytes are their own character; the other 68 take the characters from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in table.values())
    return table | {chr(0x100 + number): byte for number, byte in enumerate(others)}


_BYTES = _byte_of_character()


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a byte-level entry; an entry with a character outside the scheme is plain text."""
    try:
        return bytes(_BYTES[character] for character in token)
    except KeyError:
        return token.encode("utf-8")


def byte_fallback_value(token: str) -> int | None:
    """The byte that an entry like `<0x0A>` stands for, or None for ordinary entries."""
    match = _FALLBACK.fullmatch(token)
    return None if match is None else int(match[1], 16)
