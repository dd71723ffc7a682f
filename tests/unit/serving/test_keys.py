"""API keys: read from a file, kept as digests, all compared."""

import hashlib
import hmac

import pytest

from mstar_core.errors import ConfigError
from mstar_core.serving.keys import Keys

ONE, TWO = "a" * 20, "b" * 20


def test_a_file_has_one_key_a_line(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"# ours\n\n{ONE}\n  {TWO}  \r\n")
    keys = Keys.read(path)
    assert len(keys) == 2
    assert (keys.label(ONE), keys.label(TWO), keys.label("c" * 20)) == ("1", "2", None)


@pytest.mark.parametrize("text", ["", "# nothing\n", "\n\n"])
def test_a_file_without_a_key_is_refused(tmp_path, text):
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ConfigError, match="at least one API key"):
        Keys.read(path)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content):
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        Keys.read(path)


@pytest.mark.parametrize("key", ["short", "a" * 15, "a b" * 10, "é" * 20, "a" * 20 + "\x00"])
def test_a_key_that_is_easily_guessed_or_cannot_be_sent_is_refused_without_being_told(key):
    with pytest.raises(ConfigError) as caught:
        Keys.of([ONE, key])
    assert "key 2" in caught.value.where
    assert key not in str(caught.value)


def test_a_key_given_twice_is_refused():
    with pytest.raises(ConfigError, match="one key twice"):
        Keys.of([ONE, TWO, ONE])


def test_no_key_is_kept_or_shown():
    keys = Keys.of([ONE])
    assert ONE not in repr(keys)
    assert keys.digests == (hashlib.sha256(ONE.encode()).digest(),)


def test_every_key_is_compared_whichever_it_was(monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(a) or real(a, b))
    keys = Keys.of([ONE, TWO, "c" * 20])
    for key in (ONE, "c" * 20, "wrong", ""):
        keys.label(key)
        assert compared == list(keys.digests)
        compared.clear()
