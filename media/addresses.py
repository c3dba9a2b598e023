"""Which addresses are fetched, and how they are written.

A source's addresses come from outside, so one of them may point into our own network (server-side request forgery).
The check is made on the addresses that a name resolves to, and exactly those are then connected to: a name that
resolves differently a moment later (DNS rebinding) gains nothing. Each redirect is checked in the same way.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from faults import Fault
from sources.addresses import canonical, redact

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_STANDING_FOR_IPV4: Final = (
    _NAT64,
    ipaddress.IPv6Network("::/96"),  # IPv4-compatible, RFC 4291, 2.5.5.1
    ipaddress.IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated, RFC 2765
)
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_DOCUMENTATION: Final = ipaddress.IPv6Network("3fff::/20")
_NOT_PUBLIC: Final = (ipaddress.IPv4Network("192.0.0.0/24"), ipaddress.IPv4Network("192.88.99.0/24"))
"""Networks for protocols (RFC 6890) and of the former 6to4 relays, some of whose addresses Python calls global."""
_METADATA: Final = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "169.254.169.254",  # EC2, Google, Azure and most others
        "169.254.170.2",  # ECS: a task's credentials
        "169.254.170.23",  # EKS: a pod's credentials
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's platform, behind an address that looks public
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)
"""Where a cloud's machines ask for their own credentials. No video lives there, in no private network either."""


@dataclass(frozen=True, slots=True)
class Target:
    """One http(s) address, taken apart and checked. `target` is path and query exactly as given; `addresses` are what
    the host resolved to, in the resolver's order; `userinfo` is "user:password", percent-encoded, or None."""

    scheme: str
    host: str
    port: int
    target: str
    userinfo: str | None
    addresses: tuple[str, ...]

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


async def check_address(url: str, *, allow_private: bool) -> Target:
    """The parts of `url` and the addresses to connect to, if it may be fetched.

    Raises Fault("source-address-refused") for another scheme than http and https (in any case), for a malformed
    address, and, unless `allow_private`, for a host any of whose addresses is loopback, link-local, private, or
    otherwise not on the public Internet; multicast, unspecified and clouds' metadata addresses are always refused.
    Raises Fault("source-unreachable") where the name does not resolve. No fault's text holds a secret.
    """
    try:
        # A ready-made address comes out as it went in: encoded again, its signature would no longer hold.
        text = canonical(url)
        parts = urlsplit(text)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        raise Fault("source-address-refused", "the address is malformed") from None
    if scheme not in _DEFAULT_PORTS:
        raise Fault("source-address-refused", f"the scheme is {scheme[:40]!r}, not http or https")
    if not host or _CONTROL.search(text):
        raise Fault("source-address-refused", "the address has no valid host")
    try:
        ascii_host = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        raise Fault("source-address-refused", "the address's host name is malformed") from None
    port = _DEFAULT_PORTS[scheme] if port is None else port
    found = await _resolve(ascii_host, port)
    for address in found:
        if _always_refused(address) or not (allow_private or _is_public(address)):
            raise Fault(
                "source-address-refused",
                f"{redact(url)} leads to {address}, not on the public Internet (media.allow_private_addresses)",
            )
    userinfo = parts.netloc.rpartition("@")[0] or None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme, ascii_host, port, target, userinfo, tuple(str(address) for address in found))


async def _resolve(host: str, port: int) -> list[IPAddress]:
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Fault("source-unreachable", f"the name {host[:255]} does not resolve") from None
    # A scope id ("fe80::1%eth0") is no part of the address that is judged; such an address is link-local anyway.
    found = dict.fromkeys(ipaddress.ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers)
    return list(found)


def _embedded(address: IPAddress) -> IPAddress:
    """The IPv4 address that an IPv6 one stands for (mapped, compatible, translated, 6to4, NAT64, ISATAP), else the
    address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is not None:
        return inner
    low = int(address) & 0xFFFFFFFF
    # "::1" and "::" are addresses of their own.
    if low > 1 and any(address in network for network in _STANDING_FOR_IPV4):
        return ipaddress.IPv4Address(low)
    return ipaddress.IPv4Address(low) if int(address) >> 32 & 0xFFFFFFFF in _ISATAP else address


def _always_refused(address: IPAddress) -> bool:
    inner = _embedded(address)
    return inner.is_multicast or inner.is_unspecified or inner in _METADATA


def _is_public(address: IPAddress) -> bool:
    inner = _embedded(address)
    if isinstance(inner, ipaddress.IPv6Address):
        return inner.is_global and inner in _GLOBAL_UNICAST and inner not in _DOCUMENTATION
    return inner.is_global and not any(inner in network for network in _NOT_PUBLIC)
