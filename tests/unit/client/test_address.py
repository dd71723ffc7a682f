"""What a base URL may be."""

import pytest

from mstar_core.client.address import address_of
from mstar_core.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "authority", "prefix", "tls"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", "", False),
        ("http://127.0.0.1:8000/v1", "127.0.0.1:8000", "", False),
        ("http://127.0.0.1:8000/v1/", "127.0.0.1:8000", "", False),
        ("https://host/api/v1", "host", "/api", True),
        ("http://[::1]:80", "[::1]", "", False),
        ("https://[::1]:80", "[::1]:80", "", True),
    ],
)
def test_an_address_has_its_authority_and_prefix_and_no_version(url, authority, prefix, tls):
    address = address_of(url)
    assert (address.authority, address.prefix, address.tls) == (authority, prefix, tls)


def test_a_unix_socket_is_an_address():
    assert address_of("unix:/run/a.sock").unix == "/run/a.sock"
    assert address_of("unix:///run/a.sock").unix == "/run/a.sock"
    assert str(address_of("unix:/run/a.sock")) == "unix:/run/a.sock"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:80",
        "ftp://host",
        "http://",
        "http://h:99999",
        "http://a b",
        "http://h\r\n/",
        "http://user:pass@h",
        "http://h?x=1",
        "unix:",
    ],
)
def test_what_is_no_address_is_refused_with_what_would_be(url):
    with pytest.raises(ConfigError, match="base_url"):
        address_of(url)
