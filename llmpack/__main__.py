"""`python -m llmpack` is `llmpack`."""

from __future__ import annotations

from llmpack.cli.app import main

if __name__ == "__main__":
    main()
