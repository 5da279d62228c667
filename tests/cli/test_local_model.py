"""`generate` and `chat` over a model on paper whose answer is known to the byte."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmpack.cli.app import app
from llmpack.cli.local_model import LocalModel
from llmpack.errors import EngineError, RequestError
from llmpack.runtime.engine import Engine
from llmpack.runtime.paper_runner import PaperRunner
from llmpack.runtime.request import Logits
from llmpack.runtime.runner import DecodeBatch, RunnerShape
from llmpack.runtime.tokenizer import Tokenizer
from tests.server.scripted import SCRIPT, build_model, script_of, write_tokenizer


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalModel:
    """What the commands load in place of an artifact."""
    write_tokenizer(tmp_path)
    tokenizer = Tokenizer.from_directory(tmp_path)
    shape = RunnerShape(2, 512, tokenizer.vocab_size, (16, 64), (1, 2))
    local = LocalModel(Engine(PaperRunner(shape, script_of(tokenizer)), tokenizer), build_model(tmp_path, tokenizer))
    for command in ("generate", "chat"):
        monkeypatch.setattr(f"llmpack.cli.{command}.load_local_model", lambda _: local)
    return local


def run(*arguments: str) -> None:
    app([*arguments], standalone_mode=False)


def test_generate_streams_the_text(local: LocalModel, capsys: pytest.CaptureFixture[str]) -> None:
    run("generate", "dir", "I go", "--temperature", "0")
    assert capsys.readouterr().out == SCRIPT + "\n"


def test_generate_json_holds_text_ids_and_reason(local: LocalModel, capsys: pytest.CaptureFixture[str]) -> None:
    run("generate", "dir", "I go", "--temperature", "0", "--stop", "STOP", "--json")
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["text"] == SCRIPT.partition("STOP")[0]
    assert (report["finish_reason"], report["stop_reason"]) == ("stop", "STOP")
    assert report["prompt_token_ids"] == local.model.tokenizer.encode("I go", add_special_tokens=True)
    assert local.model.tokenizer.decode(report["token_ids"]).startswith(report["text"])


def test_generate_reads_stdin(
    local: LocalModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("I go"))
    run("generate", "dir", "-", "--temperature", "0", "--max-tokens", "1")
    assert capsys.readouterr().out == SCRIPT[0] + "\n"


def test_output_fills_a_slot_at_most(local: LocalModel) -> None:
    assert local.build_params({}, 10).max_tokens == 256
    assert local.build_params({}, 500).max_tokens == 12
    assert local.build_params({"max_tokens": 3, "seed": None}, 500).max_tokens == 3


def test_bad_value_is_refused(local: LocalModel) -> None:
    with pytest.raises(RequestError, match="temperature"):
        run("generate", "dir", "I go", "--temperature", "-1")


def test_a_sequence_that_fails_is_an_error(
    local: LocalModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decode = local.engine._runner.decode

    def decode_badly(batch: DecodeBatch) -> Logits:
        logits = decode(batch)
        logits.fill(np.nan)
        return logits

    monkeypatch.setattr(local.engine._runner, "decode", decode_badly)
    with pytest.raises(EngineError, match="not finite"):
        run("generate", "dir", "I go", "--temperature", "0")
    assert capsys.readouterr().out == SCRIPT[0] + "\n"
    assert not local.engine.has_work


def test_chat_keeps_the_conversation(
    local: LocalModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello\n\n  \nHello again\n"))
    prompts: list[str] = []
    template = local.model.require_chat_template()
    render = template.render

    def record(messages: Any) -> str:
        prompts.append(render(messages))
        return prompts[-1]

    monkeypatch.setattr(template, "render", record)
    run("chat", "dir", "--system", "Be short", "--temperature", "0")
    captured = capsys.readouterr()
    assert captured.out == (SCRIPT + "\n") * 2
    assert captured.err == ""
    assert prompts[0] == "system: Be short\nuser: Hello\nassistant go"
    assert prompts[1] == f"system: Be short\nuser: Hello\nassistant: {SCRIPT}\nuser: Hello again\nassistant go"


def test_leaving_a_stream_frees_its_slot(local: LocalModel) -> None:
    prompt_ids = local.model.tokenizer.encode("I go", add_special_tokens=True)
    for _ in range(5):
        stream = local.stream(prompt_ids, local.build_params({"temperature": 0}, len(prompt_ids)))
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert not local.engine.has_work
