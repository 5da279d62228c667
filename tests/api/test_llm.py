from __future__ import annotations

import asyncio
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from llmpack import LLM, RequestOutputKind, SamplingParams
from llmpack.errors import EngineError, RequestError, UsageError
from tests.api.conftest import Build
from tests.server.scripted import SCRIPT

GREEDY = SamplingParams(temperature=0, max_tokens=50)


def test_results_come_in_the_order_of_prompts(llm: LLM) -> None:
    prompts = [f"number {number} go" for number in range(40)]
    outputs = llm.generate(prompts, GREEDY)
    assert [output.prompt for output in outputs] == prompts
    assert {output.outputs[0].text for output in outputs} == {SCRIPT}
    assert all(output.finished for output in outputs)
    assert len({output.request_id for output in outputs}) == 40


def test_one_prompt_of_any_form(llm: LLM) -> None:
    ids = llm.get_tokenizer().encode("say go")
    for prompt in ("say go", ids, {"prompt": "say go"}, {"prompt_token_ids": ids}):
        outputs = llm.generate(prompt, GREEDY)  # type: ignore[arg-type]
        assert [output.outputs[0].text for output in outputs] == [SCRIPT]
    assert len(llm.generate([ids, "say go"], GREEDY)) == 2
    assert llm.generate([], GREEDY) == []


def test_reused_prompt_tokens_are_told(llm: LLM) -> None:
    prompt = "ab" * 50 + " go"
    outputs = [llm.generate(prompt, GREEDY)[0] for _ in range(2)]
    assert [output.num_cached_tokens for output in outputs] == [0, 64]
    assert {output.outputs[0].text for output in outputs} == {SCRIPT}


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.parametrize(("choice", "num_reused"), [({}, 128), ({"enable_prefix_caching": False}, 0)])
def test_prefix_caching_can_be_turned_off(compiled_script: Path, choice: dict[str, bool], num_reused: int) -> None:
    with LLM(compiled_script, **choice) as llm:
        outputs = [llm.generate("ab" * 80 + " go", GREEDY)[0] for _ in range(2)]
    assert [output.num_cached_tokens for output in outputs] == [0, num_reused]


def test_one_set_of_parameters_for_each_prompt(llm: LLM) -> None:
    params = [SamplingParams(temperature=0, max_tokens=number) for number in (1, 2, 3)]
    outputs = llm.generate(["say go"] * 3, params)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1, 2, 3]
    with pytest.raises(UsageError, match="allowed: one for all, or 2"):
        llm.generate(["a", "b"], params)


def test_the_output_kind_does_not_matter(llm: LLM) -> None:
    delta = replace(GREEDY, output_kind=RequestOutputKind.DELTA)
    assert llm.generate("say go", delta)[0].outputs[0].text == SCRIPT


def test_the_models_defaults_are_taken_when_nothing_is_given(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    model = replace(llm.engine.model, sampling_defaults={"temperature": 0.0, "top_k": 3})
    monkeypatch.setattr(llm.engine, "model", model)
    assert llm.get_default_sampling_params() == SamplingParams(temperature=0.0, top_k=3)
    assert SCRIPT.startswith(llm.generate("say go")[0].outputs[0].text)


def test_chat_renders_the_template_without_further_special_tokens(llm: LLM) -> None:
    one = [{"role": "user", "content": "Hello"}]
    output = llm.chat(one, GREEDY)[0]
    assert (output.prompt, output.outputs[0].text) == ("user: Hello\nassistant go", SCRIPT)
    several = llm.chat([one, [{"role": "user", "content": "two"}]], GREEDY)
    assert [output.prompt for output in several] == ["user: Hello\nassistant go", "user: two\nassistant go"]
    begun = [*one, {"role": "assistant", "content": "so go"}]
    continued = llm.chat(begun, GREEDY, continue_final_message=True)[0]
    assert continued.prompt == "user: Hello\nassistant: so go"
    assert continued.outputs[0].text == SCRIPT
    assert "!" in str(llm.chat(one, GREEDY, note="!")[0].prompt)


def test_chat_without_a_template_says_so(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm.engine.tokenizer, "_template", None)
    with pytest.raises(RequestError, match="no chat template"):
        llm.chat([{"role": "user", "content": "Hello"}])


def test_the_first_bad_prompt_is_named_and_ends_the_call(build: Build) -> None:
    llm = LLM.from_engine(build(step_time_s=0.005))
    with pytest.raises(RequestError, match="empty") as caught:
        llm.generate(["a", "b", ""], SamplingParams(max_tokens=400, ignore_eos=True))
    assert caught.value.__notes__ == ["This was prompt 2."]
    assert llm.generate("say go", GREEDY)[0].outputs[0].text == SCRIPT


def test_no_progress_bar(llm: LLM) -> None:
    assert llm.generate("say go", GREEDY, use_tqdm=False)
    with pytest.raises(UsageError, match="use_tqdm"):
        llm.generate("say go", GREEDY, use_tqdm=True)


def test_works_below_a_running_loop_and_from_several_threads(llm: LLM) -> None:
    async def notebook() -> str:
        return llm.generate("say go", GREEDY)[0].outputs[0].text

    assert asyncio.run(notebook()) == SCRIPT
    texts: list[str] = []
    work = [threading.Thread(target=lambda: texts.append(llm.generate("say go", GREEDY)[0].outputs[0].text))
            for _ in range(5)]  # fmt: skip
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert texts == [SCRIPT] * 5


def test_interrupts_abort_at_once(build: Build) -> None:
    llm = LLM.from_engine(build(step_time_s=0.01))
    began_s = time.monotonic()
    main_thread, is_raised = threading.get_ident(), threading.Event()

    def press_ctrl_c() -> None:
        # Again and again, like a person: Python loses an interrupt that arrives in a garbage collector's callback.
        while not is_raised.wait(0.5):
            signal.pthread_kill(main_thread, signal.SIGINT)

    presser = threading.Thread(target=press_ctrl_c)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a b"] * 20, SamplingParams(max_tokens=500, ignore_eos=True))
    is_raised.set()
    presser.join()
    assert time.monotonic() - began_s < 4.0
    assert llm.generate("say go", GREEDY)[0].outputs[0].text == SCRIPT


def test_a_block_stops_the_engine(llm: LLM) -> None:
    with llm:
        assert llm.generate("say go", GREEDY)
    assert not llm.engine.is_running
    with pytest.raises(EngineError):
        llm.generate("say go", GREEDY)
