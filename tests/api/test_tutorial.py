"""A script written for vLLM's plugin of compiled models runs after a change of its import line and its directories."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llmpack import LLM, AsyncEngineArgs, SamplingParams
from llmpack.errors import ValidationFailed
from tests.server.scripted import SCRIPT

pytestmark = [pytest.mark.slow, pytest.mark.compile]

NUM_TOKENS = 16  # the default of SamplingParams, which the script relies on

# The calls, arguments and order of the tutorial of vllm-rbln's documentation on continuous batching; both numbers are
# those of its compile.
SOURCE = """\
import asyncio
from transformers import AutoTokenizer
from vllm import AsyncEngineArgs, AsyncLLMEngine, SamplingParams

source = "meta-llama/Llama-2-7b-chat-hf"
length, slots = 4096, 4
engine = AsyncLLMEngine.from_engine_args(
    AsyncEngineArgs(
        model=source,
        device="rbln",
        max_num_seqs=slots,
        max_num_batched_tokens=length,
        max_model_len=length,
        block_size=length,
        compiled_model_dir="rbln-Llama-2-7b-chat-hf",
    )
)
tokenizer = AutoTokenizer.from_pretrained(source)
ends = [tokenizer.eos_token_id]
ends += [id for id, token in tokenizer.added_tokens_decoder.items() if token.content == "<|eot_id|>"]
params = SamplingParams(temperature=0.0, skip_special_tokens=True, stop_token_ids=ends)


def render(text):
    conversation = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False)


async def ask(chat, request_id):
    final = None
    async for output in engine.generate(chat, params, request_id=request_id):
        final = output
    return final


async def ask_all(chats):
    tasks = [asyncio.create_task(ask(chat, number)) for number, chat in enumerate(chats)]
    return [await task for task in tasks]


print(repr(asyncio.run(ask(render("first"), "123"))))
print(repr(asyncio.run(ask_all([render("second"), render("third")]))))
"""


@pytest.fixture(scope="module")
def expected(compiled_script: Path) -> str:
    with LLM(compiled_script) as llm:
        output = llm.generate("go: go", SamplingParams(temperature=0, max_tokens=NUM_TOKENS))[0]
    assert SCRIPT.startswith(output.outputs[0].text)
    return output.outputs[0].text


def test_the_script_runs(compiled_script: Path, expected: str) -> None:
    source = SOURCE.replace("from vllm import", "from llmpack import")
    for directory in ("meta-llama/Llama-2-7b-chat-hf", "rbln-Llama-2-7b-chat-hf"):
        source = source.replace(f'"{directory}"', repr(str(compiled_script)))
    run = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    single, several = run.stdout.splitlines()
    assert single.startswith("RequestOutput(request_id='123', prompt='user: first\\nassistant go'")
    assert several.startswith("[RequestOutput(request_id=0, ")
    assert "RequestOutput(request_id=1, " in several
    assert run.stdout.count(repr(expected)) == 3
    assert run.stdout.count("finished=True") == 3


def test_a_tokenizer_is_not_needed_from_elsewhere(compiled_script: Path, expected: str) -> None:
    with LLM(model=compiled_script, max_num_seqs=2, max_model_len=64, seed=1) as llm:
        assert llm.engine.model.limits.max_seq_len == 64
        conversations = [[{"role": "user", "content": str(number)}] for number in range(8)]
        outputs = llm.chat(conversations, SamplingParams(temperature=0, max_tokens=NUM_TOKENS))
        assert {output.outputs[0].text for output in outputs} == {expected}
        assert llm.engine._engine.engine.rules.max_running == 2


def test_other_numbers_than_the_compiled_ones_are_refused(compiled_script: Path) -> None:
    with pytest.raises(ValidationFailed) as caught:
        LLM(compiled_script, max_model_len=8192, block_size=16, max_num_seqs=8)
    assert all(rule in str(caught.value) for rule in ("LP101", "LP102", "LP104"))
    assert AsyncEngineArgs(compiled_script).artifact_dir == compiled_script
