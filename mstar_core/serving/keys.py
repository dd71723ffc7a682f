"""API keys: a file of them, kept as digests, every one compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from attrs import field, frozen

from mstar_core.errors import ConfigError, Words

SHORTEST = 16
"""Characters that a key has at least."""


@frozen
class Keys:
    """The keys that may call the server; with none, nobody is asked for one."""

    digests: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, keys: Iterable[str], where: str = "api_key_file") -> Keys:
        """Raises ConfigError for keys that are too short, not plain ASCII, or given twice."""
        digests = [_digest(_checked(key, number, where)) for number, key in enumerate(keys, 1)]
        if len(set(digests)) < len(digests):
            raise ConfigError(
                where=where,
                got=Words("one key twice"),
                want="keys that differ, since requests are counted per key",
                fix="remove one of the two",
            )
        return cls(tuple(digests))

    @classmethod
    def read(cls, path: str | Path) -> Keys:
        """One key a line; empty lines and lines that begin with ``#`` are left out.

        Raises ConfigError where the file cannot be read or has no key.
        """
        where = str(path)
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                where=where,
                got=Words("a file that cannot be read"),
                want="a text file with one API key a line",
                fix="check the path and its permissions",
            ) from error
        keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not keys:
            raise ConfigError(
                where=where,
                got=Words("a file without a key"),
                want="at least one API key, one a line",
                fix='write one: python -c "import secrets; print(secrets.token_urlsafe(32))"',
            )
        return cls.of(keys, where)

    def __len__(self) -> int:
        return len(self.digests)

    def label(self, key: str) -> str | None:
        """Which one ``key`` is, as its position from 1; None for none of them.

        Each is compared, whether or not an earlier one was it.
        """
        digest = _digest(key)
        found = None
        for position, known in enumerate(self.digests, 1):
            if hmac.compare_digest(known, digest):
                found = str(position)
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _checked(key: str, number: int, where: str) -> str:
    if len(key) >= SHORTEST and key.isascii() and key.isprintable() and " " not in key:
        return key
    raise ConfigError(
        where=f"{where}, key {number}",
        got=Words(f"a key of {len(key)} characters"),
        want=f"at least {SHORTEST} characters of ASCII, without blanks",
        fix='write one: python -c "import secrets; print(secrets.token_urlsafe(32))"',
    )
