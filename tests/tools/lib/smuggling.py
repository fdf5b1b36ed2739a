"""Requests whose end two HTTP parsers may see at different places. All must be refused."""

CHAT = "/v1/chat/completions"


def smuggled(body):
    """(name, bytes) of each request. body is a valid body of a chat completion."""
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer k1\r\n"
    head = head.encode()
    length = b"Content-Length: %d\r\n" % len(body)
    chunked = b"Transfer-Encoding: chunked\r\n"
    whole = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    return (
        ("a length and chunks", head + length + chunked + b"\r\n" + whole),
        ("chunks and a length", head + chunked + length + b"\r\n" + whole),
        ("two lengths", head + length + b"Content-Length: 5\r\n\r\n" + body),
        ("a list of lengths", head + b"Content-Length: %d, 5\r\n\r\n" % len(body) + body),
        ("length -1", head + b"Content-Length: -1\r\n\r\n" + body),
        ("length +5", head + b"Content-Length: +5\r\n\r\n" + body),
        ("length 0x5", head + b"Content-Length: 0x5\r\n\r\n" + body),
        ("an empty length", head + b"Content-Length: \r\n\r\n" + body),
        ("a length of 30 digits", head + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n"),
        ("chunk size -1", head + chunked + b"\r\n-1\r\n" + body + b"\r\n0\r\n\r\n"),
        ("a huge chunk size", head + chunked + b"\r\nfffffffffffffffff\r\n" + body),
        ("chunk size 0x5", head + chunked + b"\r\n0x5\r\n" + body + b"\r\n0\r\n\r\n"),
        ("chunk size g", head + chunked + b"\r\ng\r\n" + body + b"\r\n0\r\n\r\n"),
        ("an unknown coding", head + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + whole),
        ("a coding in quotes", head + b'Transfer-Encoding: "chunked"\r\n\r\n' + whole),
        ("obs-fold", head + length + b"X-A: b\r\n c\r\n\r\n" + body),
        ("a space before the colon", head + b"Content-Length : %d\r\n\r\n" % len(body) + body),
        ("bare line feeds", head.replace(b"\r\n", b"\n") + length[:-2] + b"\n\n" + body),
        ("a bare line feed", head + length[:-2] + b"\n\r\n" + body),
        ("a bare return", head + length + b"X-A: b\rX-B: c\r\n\r\n" + body),
        ("no host", head.replace(b"Host: 127.0.0.1\r\n", b"") + length + b"\r\n" + body),
        ("two hosts", head + b"Host: localhost\r\n" + length + b"\r\n" + body),
        ("a NUL in a header", head + length + b"X-A: b\0c\r\n\r\n" + body),
        ("no version", b"GET /health\r\n\r\n"),
        ("HTTP/3.0", b"GET /health HTTP/3.0\r\nHost: 127.0.0.1\r\n\r\n"),
        ("no method", b" /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        ("noise", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    )
