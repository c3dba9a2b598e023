from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.addresses import bears_secret, canonical, encode_key, redact, scrub

text = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://user:s3cret@host/x?X-Amz-Signature=abc", "http://host/x?X-Amz-Signature=…"),
        ("HTTPS://user@host:8443/a/b.mp4", "HTTPS://host:8443/a/b.mp4"),
        ("https://host/x?a=1&token=abc&flag#access_token=abc", "https://host/x?a=…&token=…&…#…"),
        ("https://user:p@ss@host/x", "https://host/x"),
        ("https://user:pa/ss@host/x", "https://…host/x"),
        ("https://user:p?ss@host/x", "https://…?…"),
        ("http:user:s3cret@host/x", "http:host/x"),
        ("https://[::1]:80/x", "https://[::1]:80/x"),
        ("https://[::1/x", "https://…/x"),
        ("https://host/@user/film.mp4", "https://host/@user/film.mp4"),
        ("/srv/films/a b.mp4", "/srv/films/a b.mp4"),
        ("", ""),
    ],
)
def test_a_redacted_address_keeps_scheme_host_and_path_only(address: str, shown: str) -> None:
    assert redact(address) == shown


@given(text)
def test_redacting_never_fails_and_changes_nothing_the_second_time(address: str) -> None:
    assert redact(redact(address)) == redact(address)


secret = st.text("QZ", min_size=12)


@given(secret, st.sampled_from(["/x", "", "/a/b.mp4"]))
def test_no_secret_survives_redaction_wherever_an_address_carries_one(word: str, path: str) -> None:
    for address in (
        f"https://{word}@host{path}",
        f"https://user:{word}@host{path}",
        f"https://host{path}?sig={word}",
        f"https://host{path}?{word}",
        f"https://host{path}?a=b&X-Amz-Signature={word}&c",
        f"https://host{path}#{word}",
        f"//user:{word}@host{path}",
    ):
        assert word not in redact(address)
        assert word not in scrub(f"GET {address} failed: 403")


def test_scrubbing_takes_out_addresses_secrets_and_both_spellings_of_a_token() -> None:
    told = scrub("token to/ken+1 sent as to%2Fken%2B1 to 'https://u:p@host/x?sig=1', refused", ["to/ken+1", ""])

    assert told == "token … sent as … to 'https://host/x?sig=…', refused"


@pytest.mark.parametrize(
    "url",
    [
        "http://user:s3cret@host/x",
        "http://user@host/x",
        "https://host/x?X-Amz-Signature=abc",
        "https://host/x?a=1&x-amz-signature=abc",
        "https://host/x?X-Goog-Credential=abc",
        "https://storage/x?sv=2022&se=2030&sr=b&sp=r&sig=abc",
        "https://cdn/x?Expires=1&Signature=abc&Key-Pair-Id=K",
        "https://cdn/x?token=abc",
        "https://cdn/x?access_token=abc;a=1",
        "https://cdn/x?hdnts=exp=1~hmac=abc",
        "https://cdn/x?verify=1-abc",
        "https://cdn/x?api_key=abc",
    ],
)
def test_an_address_that_is_good_for_whoever_knows_it_bears_a_secret(url: str) -> None:
    assert bears_secret(url)
    assert not bears_secret("https://host/x")


@pytest.mark.parametrize(
    "url", ["https://host/x", "https://host/x?v=2&quality=hd", "https://host/a@b.mp4", "https://host/x?keyframe=1", ""]
)
def test_an_address_that_anyone_may_know_bears_none(url: str) -> None:
    assert not bears_secret(url)


@given(text)
def test_asking_whether_any_text_bears_a_secret_never_fails(url: str) -> None:
    bears_secret(url)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("a b", "a%20b"),
        ("a+b", "a%2Bb"),
        ("10%2B2.jpg", "10%252B2.jpg"),
        ("café", "caf%C3%A9"),
        ("a/b?c#d", "a/b%3Fc%23d"),
    ],
)
def test_a_key_is_encoded_exactly_once(key: str, path: str) -> None:
    assert encode_key(key) == path
    assert canonical(f"https://bucket.example/{path}") == f"https://bucket.example/{path}"


@given(text)
def test_decoding_an_encoded_key_gives_the_key(key: str) -> None:
    assert unquote(encode_key(key)) == key


@given(text)
def test_an_address_made_from_a_key_is_ready_made(key: str) -> None:
    address = f"https://bucket.example/{encode_key(key)}"

    assert canonical(address) == address
    assert unquote(urlsplit(address).path.removeprefix("/")) == key


@given(text)
def test_encoding_an_address_twice_is_encoding_it_once(part: str) -> None:
    for address in (part, f"https://host/{part}", f"https://host/x?{part}", f"https://host/x#{part}"):
        once = canonical(address)
        assert canonical(once) == once


@given(text)
def test_encoding_an_address_keeps_what_it_decodes_to(part: str) -> None:
    assert unquote(canonical(f"https://host/{part}")) == unquote(f"https://host/{part}")


@pytest.mark.parametrize(
    ("written", "fetched"),
    [
        ("https://host/a b.mp4", "https://host/a%20b.mp4"),
        ("https://host/café/100%.mp4?q=ü", "https://host/caf%C3%A9/100%25.mp4?q=%C3%BC"),
        (
            "HTTP://Host/a+b%2Bc.mp4?X-Amz-Signature=a%2Fb/c&f[0]=1",
            "HTTP://Host/a+b%2Bc.mp4?X-Amz-Signature=a%2Fb/c&f[0]=1",
        ),
        ('https://host/"q"\\x', "https://host/%22q%22%5Cx"),
    ],
)
def test_only_what_no_address_may_hold_is_encoded(written: str, fetched: str) -> None:
    assert canonical(written) == fetched


def test_half_a_character_is_no_address() -> None:
    with pytest.raises(ValueError):
        canonical("https://host/\ud800")
