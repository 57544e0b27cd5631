"""The options of curl that the documents' examples use; where there is no curl, `conftest.py` puts this on PATH."""

from __future__ import annotations

import argparse
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def main() -> None:
    """Send one request and print the body of its answer as it comes, whatever its status."""
    parser = argparse.ArgumentParser(prog="curl", allow_abbrev=False)
    parser.add_argument("-s", "--silent", action="store_true")
    parser.add_argument("-N", "--no-buffer", action="store_true")
    parser.add_argument("-X", "--request")
    parser.add_argument("-H", "--header", action="append", default=[])
    parser.add_argument("-d", "--data")
    parser.add_argument("url")
    given = parser.parse_args()
    headers = {name: value.strip() for name, _, value in (header.partition(":") for header in given.header)}
    body = None if given.data is None else given.data.encode()
    request = Request(given.url, data=body, headers=headers, method=given.request)  # noqa: S310 - the examples' own URLs
    try:
        answer = urlopen(request)  # noqa: S310
    except HTTPError as refused:
        answer = refused
    with answer:
        while part := answer.read1():
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
