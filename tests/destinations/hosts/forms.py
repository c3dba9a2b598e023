"""Reading multipart/form-data with one file in it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    field: str
    filename: str
    media_type: str
    content: bytes


def file_in(content_type: str, body: bytes) -> Part:
    """The one file of a form. AssertionError for what is none, or has more than one."""
    boundary = re.search(r"boundary=([^;]+)", content_type)
    assert content_type.startswith("multipart/form-data") and boundary, content_type
    mark = b"--" + boundary[1].encode()
    assert body.startswith(mark) and body.rstrip().endswith(mark + b"--"), "the form has no beginning or no end"
    parts = body.split(mark)[1:-1]
    assert len(parts) == 1, f"{len(parts)} parts"
    head, _, content = parts[0].removeprefix(b"\r\n").partition(b"\r\n\r\n")
    words = head.decode()
    names = dict(re.findall(r'(\w+)="([^"]*)"', words))
    kind = re.search(r"(?im)^content-type: *(\S+)", words)
    return Part(names["name"], names.get("filename", ""), kind[1] if kind else "", content.removesuffix(b"\r\n"))
