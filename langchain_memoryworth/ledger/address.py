"""What the URL of a database says: on which of the two engines it is, and in which schema of a server. Nothing is connected."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from langchain_memoryworth.errors import InvalidInputError, MissingExtraError

SCHEMA = "memoryworth"
"""The Postgres schema of a store whose URL names none."""

_LONGEST_NAME = 63
"""Postgres cuts a longer name off without an error, so that two of them may be one."""

_SECRETS = (
    "password",
    "sslpassword",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
)
"""The options of libpq that nobody else may see."""


class Address(NamedTuple):
    """Where a store is.

    Attributes:
        url: For SQLAlchemy.
        schema: Of Postgres; None on SQLite.
    """

    url: URL
    schema: str | None


def address_of(url: str) -> Address:
    """Read a URL.

    Raises:
        InvalidInputError: If it is none, names an engine that is not supported, or has options that nobody would look at.
        MissingExtraError: If the driver of Postgres is not installed.

    Examples:
        >>> address_of("postgresql+psycopg://app@db.example/agents?schema=team_a").schema
        'team_a'
        >>> address_of("sqlite:///memories.db").schema is None
        True
    """
    parsed = _parsed(url)
    server = parsed.drivername in ("postgresql", "postgresql+psycopg")
    if not server and parsed.drivername not in ("sqlite", "sqlite+pysqlite"):  # others are async
        raise InvalidInputError(
            f"{parsed.drivername!r} is not supported; give sqlite:///... or postgresql+psycopg://...",
            value=parsed.drivername,
        )
    if not server and (parsed.host or parsed.username):
        raise _is_none(url, "a file is on no host")
    if server and _is_ambiguous(str(url), parsed):
        raise _is_none(url, "it may mean two; in a user or password write %40 for @, %3F for ?")
    # SQLAlchemy leaves options out that are empty, and the one of an empty variable would be the schema of somebody else.
    options = parse_qsl(str(url).partition("?")[2], keep_blank_values=True)
    if empty := [name for name, value in options if not value]:
        raise InvalidInputError(
            f"{empty[0]}= in the URL is empty; give it a value, or leave it out", value=empty[0]
        )
    if server:
        return _on_server(parsed.set(drivername="postgresql+psycopg"))
    if parsed.query and "uri" not in parsed.query:
        raise InvalidInputError(
            f"{next(iter(parsed.query))!r} in the URL of a SQLite file; give each store a file of its own, and options of "
            "SQLite as in sqlite:///file:memories.db?mode=ro&uri=true",
            value=tuple(parsed.query),
        )
    return Address(parsed, None)


def shown(url: URL) -> str:
    """A URL as anybody may see it: without the passwords, that of the user and those among the options.

    Examples:
        >>> shown(make_url("postgresql+psycopg://app:one@db.example/agents?password=two&sslmode=require"))
        'postgresql+psycopg://app:***@db.example/agents?sslmode=require'
    """
    return url.difference_update_query(_SECRETS).render_as_string(hide_password=True)


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError:  # neither is chained: some of their messages have what may be a password
        raise _is_none(url, "it has no driver://") from None
    except ValueError:
        raise _is_none(url, "its port is no number; in a password an @ is %40") from None


def _is_ambiguous(url: str, parsed: URL) -> bool:
    """Whether an `@` or `?` that is not escaped makes the end of a password something else, such as a host."""
    place, _, options = url.partition("?")
    names = [name for name, _ in parse_qsl(options, keep_blank_values=True)]
    has_user = parsed.username is not None
    return place.count("@") > 1 or has_user != ("@" in place) or any("@" in n for n in names)


def _is_none(url: object, reason: str) -> InvalidInputError:
    begin = _BEFORE_ANY_PASSWORD.match(url) if isinstance(url, str) else None
    seen = url if begin is None or begin[0] == url else f"{begin[0]}***"
    return InvalidInputError(
        f"{seen!r} is no database URL ({reason}); give sqlite:///memories.db, sqlite:// or postgresql+psycopg://...",
        value=seen,
    )


_BEFORE_ANY_PASSWORD = re.compile(r"([\w+]*:/+)?[^:@?=]*")


def _on_server(url: URL) -> Address:
    schema = url.query.get("schema", SCHEMA)
    if not _is_plain(schema):
        raise InvalidInputError(
            f"schema={schema!r} in the URL; give one name of letters, digits and _, of {_LONGEST_NAME} characters at most, "
            "that does not begin with pg_",
            value=schema,
        )
    url = url.difference_update_query(["schema"])
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import make_conninfo
    except ModuleNotFoundError as error:
        raise MissingExtraError("postgres", "psycopg") from error
    try:
        make_conninfo(**dict.fromkeys(url.query, ""))
    except ProgrammingError as error:
        raise InvalidInputError(
            f"{str(error).strip()} in the URL; give those of libpq, such as host= and sslmode=, and schema=",
            value=tuple(url.query),
        ) from error
    return Address(url, str(schema))


def _is_plain(name: str | tuple[str, ...]) -> bool:
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        return False
    return len(name) <= _LONGEST_NAME and not name.startswith("pg_")
