"""Texts for Postgres, which cannot hold the character NUL: written as two others, and read back as it was."""

from __future__ import annotations

from typing import Any

from psycopg import adapt
from psycopg.pq import Format

_ESCAPE = "\x01"
_WRITTEN = str.maketrans({"\x00": _ESCAPE + "0", _ESCAPE: _ESCAPE + "1"})
_TEXT_TYPES = (25, 1043)  # text, varchar


class _TextDumper(adapt.Dumper):
    def dump(self, obj: str) -> bytes:
        if "\x00" in obj or _ESCAPE in obj:
            obj = obj.translate(_WRITTEN)
        return obj.encode()


class _TextLoader(adapt.Loader):
    def load(self, data: Any) -> str:
        text = bytes(data).decode()
        if _ESCAPE in text:
            # No escape follows another one as it stands, so the order of these two matters not.
            text = text.replace(_ESCAPE + "0", "\x00").replace(_ESCAPE + "1", _ESCAPE)
        return text


class _BinaryTextLoader(_TextLoader):
    format = Format.BINARY


def register(connection: Any) -> None:
    """Make a connection write and read all texts so."""
    connection.adapters.register_dumper(str, _TextDumper)
    for oid in _TEXT_TYPES:
        connection.adapters.register_loader(oid, _TextLoader)
        connection.adapters.register_loader(oid, _BinaryTextLoader)
