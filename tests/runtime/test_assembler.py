from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.runtime.assembler import OutputAssembler
from llmpack.runtime.request import GenerationRequest, Sampling, SequenceOutput, TokenLogprobs
from llmpack.runtime.sampler import SampledToken
from llmpack.runtime.tokenizer import Tokenizer
from tests.runtime.tokenizer_samples import BOTH, byte_level, stories

TEXT = ": one, two STOP here😀 café END"
END = 1  # <|end|> of the byte-level sample


def request_of(**fields: Any) -> GenerationRequest:
    return GenerationRequest(
        **{"request_id": "r", "prompt_ids": (5,), "sampling": Sampling(), "max_tokens": 200, **fields}
    )


def sampled(token_id: int) -> SampledToken:
    return SampledToken(token_id, TokenLogprobs(token_id, -1.0, 1, (), ()))


def run(tokenizer: Tokenizer, ids: list[int], **fields: Any) -> list[SequenceOutput]:
    """All outputs, up to the finish that the assembler or, when the ids run out, the engine brings about."""
    assembler = OutputAssembler(tokenizer, request_of(**fields))
    outputs = []
    for token_id in ids:
        outputs.append(assembler.append(sampled(token_id)))
        if outputs[-1].finish_reason is not None:
            return outputs
    return [*outputs, assembler.finish("length")]


def text_of(outputs: list[SequenceOutput]) -> str:
    return "".join(output.text for output in outputs)


def ids_of(text: str) -> list[int]:
    return byte_level().encode(text, add_special_tokens=False)


def ending(outputs: list[SequenceOutput]) -> tuple[str, str | None, str | int | None]:
    return text_of(outputs), outputs[-1].finish_reason, outputs[-1].stop_reason


# (fields of the request, text, stop_reason)
STOPS: list[tuple[dict[str, Any], str, str]] = [
    ({"stop": ("two STOP here",)}, ": one, ", "two STOP here"),
    ({"stop": (",",)}, ": one", ","),
    ({"stop": ("wo ST",)}, ": one, t", "wo ST"),
    ({"stop": ("wo ST",), "include_stop_str_in_output": True}, ": one, two ST", "wo ST"),
    ({"stop": ("😀",)}, ": one, two STOP here", "😀"),
    ({"stop": ("here", "two")}, ": one, ", "two"),
]


@pytest.mark.parametrize(("fields", "text", "reason"), STOPS)
def test_a_stop_string_ends_the_text_and_no_part_of_it_gets_out(fields: dict[str, Any], text: str, reason: str) -> None:
    outputs = run(byte_level(), ids_of(TEXT), **fields)
    assert ending(outputs) == (text, "stop", reason)
    for count in range(len(outputs)):
        assert text.startswith(text_of(outputs[:count]))


def test_a_stop_string_in_the_prompt_or_across_its_end_does_not_fire() -> None:
    outputs = run(byte_level(), ids_of(" two"), prompt_ids=tuple(ids_of("STOP one")), stop=("STOP", "one two", "e t"))
    assert ending(outputs) == (" two", "length", None)


def test_the_beginning_of_a_stop_string_is_released_at_another_end() -> None:
    for last, reason in (([END], "stop"), ([], "length")):
        outputs = run(byte_level(), [*ids_of("one two ST"), *last], stop=("STOP",), eos_token_ids=frozenset({END}))
        assert ending(outputs) == ("one two ST", reason, None)


def test_eos_is_counted_and_reported_but_not_in_the_text() -> None:
    for skip in (True, False):
        fields = {"eos_token_ids": frozenset({END}), "skip_special_tokens": skip}
        outputs = run(byte_level(), [*ids_of("one"), END], **fields)
        assert ending(outputs) == ("one", "stop", None)
        assert outputs[-1].num_output_tokens == len(ids_of("one")) + 1
        assert outputs[-1].token_ids[-1] == END
        kept = run(byte_level(), [*ids_of("one"), END], **fields, include_stop_str_in_output=True)
        assert text_of(kept) == ("one" if skip else "one<|end|>")


def test_a_stop_token_is_reported_by_its_id() -> None:
    here = ids_of(" here")[-1]
    ids = [*ids_of("one"), here, *ids_of("more")]
    assert ending(run(byte_level(), ids, stop_token_ids=frozenset({here}))) == ("one", "stop", here)
    kept = run(byte_level(), ids, stop_token_ids=frozenset({here}), include_stop_str_in_output=True)
    assert ending(kept) == ("one" + byte_level().token_text(here), "stop", here)


def test_an_eos_that_is_also_a_stop_token_is_an_eos() -> None:
    both = frozenset({END})
    assert ending(run(byte_level(), [END], eos_token_ids=both, stop_token_ids=both)) == ("", "stop", None)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("include", [True, False])
def test_a_hidden_special_token_that_a_stop_string_spells_is_reported_as_the_string(skip: bool, include: bool) -> None:
    fields: dict[str, Any] = {"stop": ("<|end|>",), "stop_token_ids": frozenset({END}), "skip_special_tokens": skip}
    outputs = run(byte_level(), [*ids_of("one"), END, 9], **fields, include_stop_str_in_output=include)
    assert ending(outputs) == ("one<|end|>" if include else "one", "stop", "<|end|>")


def test_eos_at_max_tokens_is_a_stop() -> None:
    ids = [*ids_of("one"), END]
    for eos, reason in ((frozenset({END}), "stop"), (frozenset[int](), "length")):
        outputs = run(byte_level(), ids, max_tokens=len(ids), eos_token_ids=eos)
        assert outputs[-1].finish_reason == reason
        assert len(outputs) == len(ids)


def test_a_stop_string_at_max_tokens_is_a_stop() -> None:
    ids = ids_of("one STOP")
    assert ending(run(byte_level(), ids, max_tokens=len(ids), stop=("STOP",))) == ("one ", "stop", "STOP")


def test_bytes_that_only_the_finish_settles_can_complete_a_stop_string() -> None:
    euro = [3 + byte for byte in "€".encode()]
    outputs = run(stories(), [260, *euro], stop=("€",), max_tokens=4)
    assert ending(outputs) == (stories().decode([5, 260])[1:], "stop", "€")


def test_stop_strings_are_neither_tested_before_min_tokens_nor_later_in_that_text() -> None:
    ids = ids_of("STOP one STOP two")
    first = len(ids_of("STOP"))
    assert ending(run(byte_level(), ids, stop=("STOP",), min_tokens=first)) == ("STOP one ", "stop", "STOP")
    assert ending(run(byte_level(), ids, stop=("STOP",), min_tokens=first - 1))[0] in ("STO", "ST", "S", "STOP one ")
    assert ending(run(byte_level(), ids, stop=("STOP",), min_tokens=0)) == ("", "stop", "STOP")
    assert text_of(run(byte_level(), ids, stop=("P one",), min_tokens=first)) == "STOP one STOP two"


def test_stop_ids_do_not_end_the_sequence_before_min_tokens() -> None:
    outputs = run(byte_level(), [END, END, END], eos_token_ids=frozenset({END}), min_tokens=2)
    assert outputs[-1].num_output_tokens == 3


def test_an_abort_releases_everything() -> None:
    assembler = OutputAssembler(byte_level(), request_of(stop=("STOP",)))
    outputs = [assembler.append(sampled(token_id)) for token_id in ids_of("one ST")]
    outputs.append(assembler.finish("abort"))
    assert ending(outputs) == ("one ST", "abort", None)


def test_a_request_for_no_tokens_finishes_empty() -> None:
    output = OutputAssembler(stories(), request_of(max_tokens=0)).finish("length")
    assert output == SequenceOutput("r", finish_reason="length")


@pytest.mark.parametrize("name", BOTH)
@given(data=st.data())
def test_outputs_add_up_and_tokens_leave_with_their_text(name: str, data: st.DataObject) -> None:
    tokenizer = BOTH[name]()
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), min_size=1, max_size=30))
    alphabet = tokenizer.decode(ids).strip() or "x"
    start = data.draw(st.integers(0, len(alphabet) - 1))
    stop = alphabet[start : start + data.draw(st.integers(1, 6))]
    skip = data.draw(st.booleans())
    fields: dict[str, Any] = {"stop": (stop,), "skip_special_tokens": skip, "prompt_ids": (1, 260)}
    outputs = run(tokenizer, ids, **fields)
    whole = tokenizer.decode([260, *ids], skip)[len(tokenizer.decode([260], skip)) :]
    text, reason, stop_reason = ending(outputs)
    assert text == whole.split(stop)[0]
    assert (reason, stop_reason) == (("stop", stop) if stop in whole else ("length", None))
    reported = [token_id for output in outputs for token_id in output.token_ids]
    assert reported == ids[: outputs[-1].num_output_tokens]
    assert [entry.token_id for output in outputs for entry in output.logprobs] == reported
    assert all(output.finish_reason is None for output in outputs[:-1])
    out = ""
    for count, output in enumerate(outputs[:-1], start=1):
        out += output.text
        assert output.num_output_tokens == count
        seen = [token_id for earlier in outputs[:count] for token_id in earlier.token_ids]
        # The reported tokens alone already spell no more than what is out.
        assert len(tokenizer.decode([260, *seen], skip)) - len(tokenizer.decode([260], skip)) <= len(out)


def test_logprobs_are_left_out_when_not_sampled() -> None:
    assembler = OutputAssembler(byte_level(), request_of())
    output = assembler.append(SampledToken(ids_of("a")[0]))
    assert (output.text, output.logprobs, len(output.token_ids)) == ("a", (), 1)
