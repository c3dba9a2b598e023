"""Which addresses are fetched."""

from __future__ import annotations

import ipaddress

import pytest

import media.addresses
from faults import Fault
from media.addresses import check_address


@pytest.fixture
def resolves(monkeypatch):
    """The resolver's answer, so that no test asks a real one."""

    def answer(*addresses: str) -> None:
        async def resolve(host: str, port: int) -> list[object]:
            return [ipaddress.ip_address(address) for address in addresses]

        monkeypatch.setattr(media.addresses, "_resolve", resolve)

    return answer


async def refused(url: str, *, allow_private: bool = False) -> str:
    with pytest.raises(Fault) as caught:
        await check_address(url, allow_private=allow_private)
    return caught.value.code


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1",
        "fd00:ec2::254", "ff02::1", "2001:db8::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a00:1",
        "2002:7f00:1::", "::7f00:1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "2001:0:7f00:1::", "fec0::1", "3fff::1",
        "5f00::1", "100::1", "fe80::5efe:7f00:1", "2001:470::5efe:7f00:1", "192.0.0.9", "192.0.0.192", "192.88.99.1",
        "168.63.129.16", "100.100.100.200", "fd20:ce::254", "0.0.0.1",
    ],
)  # fmt: skip
async def test_what_is_not_on_the_public_internet_is_refused(resolves, address):
    resolves(address)
    assert await refused("https://video.example/x.mp4") == "source-address-refused"


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:93.184.215.14"])
async def test_public_addresses_are_fetched(resolves, address):
    resolves(address)
    target = await check_address("https://video.example/x.mp4", allow_private=False)
    assert len(target.addresses) == 1


async def test_one_private_address_among_public_ones_is_enough_to_refuse(resolves):
    resolves("93.184.215.14", "10.0.0.1")
    assert await refused("https://video.example/x.mp4") == "source-address-refused"


@pytest.mark.parametrize("address", ["224.0.0.1", "0.0.0.0", "::", "ff02::1"])
async def test_multicast_and_unspecified_are_refused_even_where_private_ones_are_allowed(resolves, address):
    resolves(address)
    assert await refused("http://nas/x.mp4", allow_private=True) == "source-address-refused"


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254",
        "::ffff:169.254.169.254", "::a9fe:a9fe", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::",
    ],
)  # fmt: skip
async def test_what_hands_out_a_machines_credentials_is_refused_even_where_private_ones_are_allowed(resolves, address):
    resolves(address)
    assert await refused("http://nas/x.mp4", allow_private=True) == "source-address-refused"


@pytest.mark.parametrize("address", ["127.0.0.1", "192.168.1.1", "169.254.1.1", "fd00::1", "::1"])
async def test_private_addresses_are_fetched_where_they_are_allowed(resolves, address):
    resolves(address)
    assert (await check_address("http://nas/x.mp4", allow_private=True)).addresses == (address,)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://video.example/x.mp4", "file:///etc/passwd", "gopher://video.example/", "concat:http://a/|http://b/",
        "http:///x.mp4", "http://", "//video.example/x.mp4", "http://[::1/x.mp4", "http://host:99999/", "http://host:x/",
        "http://a\nb/", "http://\x00/", "http://a" + "\ud800" + "/", "", "x",
    ],
)  # fmt: skip
async def test_anything_but_a_well_formed_http_address_is_refused(resolves, url):
    resolves("93.184.215.14")
    assert await refused(url) == "source-address-refused"


async def test_an_address_is_taken_apart_and_left_as_it_is(resolves):
    resolves("93.184.215.14")
    target = await check_address("HTTPS://user:p%40w@Vidéo.Example:8443/a%2Fb?x=%2B&y#part", allow_private=False)
    assert (target.scheme, target.host, target.port) == ("https", "xn--vido-dpa.example", 8443)
    assert (target.target, target.userinfo) == ("/a%2Fb?x=%2B&y", "user:p%40w")
    assert target.host_header == "xn--vido-dpa.example:8443"


async def test_no_refusal_repeats_a_secret(resolves):
    resolves("10.0.0.1")
    with pytest.raises(Fault) as caught:
        await check_address("https://user:s3cret@nas/x.mp4?X-Amz-Signature=abcdef", allow_private=False)
    assert "s3cret" not in str(caught.value)
    assert "abcdef" not in str(caught.value)
    assert "10.0.0.1" in str(caught.value)
