"""Which addresses belong to the world, and not to a machine or a network of ours."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

_CARRIERS = tuple(
    IPv6Network(net)
    for net in (
        "::/96",  # IPv4-compatible
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # NAT64, local
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
        "5f00::/16",  # segment routing
    )
)
"""IPv6 networks whose addresses stand for other addresses."""


def is_public(text: str) -> bool:
    """Whether ``text`` is a numeric address that anybody may be connected to.

    It is not where it is private, of this machine, of this link, a group's, kept for other use, or
    an IPv6 address that carries another one (but for the IPv4-mapped, which are judged by what
    they carry).
    """
    try:
        address: IPv4Address | IPv6Address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address.is_site_local or any(address in net for net in _CARRIERS):
            return False
    barred = address.is_multicast or address.is_reserved or address.is_unspecified
    return address.is_global and not barred
