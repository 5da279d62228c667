"""Asks a running server one question and prints the answer as it streams in; needs nothing but Python.

Usage: ask.py URL QUESTION
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from urllib.request import Request, urlopen


def main(url: str, question: str) -> None:
    """Prints the answer of the server at `url`, piece by piece, then a line end."""
    with urlopen(f"{url}/v1/models") as response:
        model = json.load(response)["data"][0]["id"]
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "temperature": 0,
        "max_tokens": 32,
    }
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)) as response:
        for piece in read_deltas(response):
            print(piece, end="", flush=True)
    print()


def read_deltas(lines: Iterator[bytes]) -> Iterator[str]:
    """The pieces of text of a chat completion's server-sent events, up to `[DONE]`.

    Raises:
        SystemExit: The stream ended early or reported an error.
    """
    for line in lines:
        if not line.startswith(b"data: "):
            continue
        data = line.removeprefix(b"data: ").strip()
        if data == b"[DONE]":
            return
        chunk = json.loads(data)
        if "error" in chunk:
            sys.exit(f"error: {chunk['error']}")
        for choice in chunk["choices"]:
            yield choice["delta"].get("content") or ""
    sys.exit("error: the stream ended without [DONE]")


if __name__ == "__main__":
    main(*sys.argv[1:])
