"""A scripted server as a process of its own: prints its URL, exits with what `serve` returns.

Usage: python serve_on_paper.py SHUTDOWN_TIMEOUT_S STEP_TIME_S [DIES]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from llmpack.runtime.runner import DecodeBatch
from llmpack.runtime.tokenizer import Tokenizer
from llmpack.server.options import ServerOptions
from llmpack.server.run import serve
from tests.server.scripted import build_engine, build_model, write_tokenizer


def tell(url: str) -> None:
    sys.stdout.write(url + "\n")
    sys.stdout.flush()


def die(_batch: DecodeBatch) -> None:
    raise RuntimeError("the paper burns")


def main(shutdown_timeout_s: str, step_time_s: str, *flags: str) -> int:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_tokenizer(directory)
        tokenizer = Tokenizer.from_directory(directory)
        engine = build_engine(tokenizer, step_time_s=float(step_time_s))
        if "DIES" in flags:
            engine.engine._runner.decode = die  # type: ignore[method-assign,assignment]
        options = ServerOptions(port=0, shutdown_timeout_s=float(shutdown_timeout_s))
        model = build_model(directory, tokenizer)
        return serve(engine, model, options, on_ready=tell)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
