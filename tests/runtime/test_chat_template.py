from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from llmpack.errors import RequestError
from llmpack.runtime import chat_template
from llmpack.runtime.chat_template import ChatTemplate
from tests.runtime.tokenizer_samples import write_byte_level

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA = """{{ bos_token }}{% for message in messages %}
{% if message.role == 'user' %}[INST] {{ message.content | trim }} [/INST]
{% elif message.role == 'assistant' %}{% generation %} {{ message.content | trim }} {{ eos_token }}{% endgeneration %}
{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}
{% endfor %}"""
PARTS = """{% for message in messages %}{% set content = message.content %}{{ message.role }}:
{%- if content is string %} {{ content }}{% else %}{% for part in content %} <{{ part.text }}>{% endfor %}{% endif %}
{% endfor %}"""
TOOLS = """{% for tool in tools or [] %}{{ tool | tojson }}
{% endfor %}{% for message in messages %}{% if message.tool_calls %}{% for call in message.tool_calls %}
{{ call.function.name }}({{ call.function.arguments | tojson(indent=2) }}){% if loop.first %}{% break %}{% endif %}
{% endfor %}{% endif %}{{ message.content }}
{% endfor %}"""
TRIMMING = "{% for message in messages %}{{ message.content | trim }}</s>{% endfor %}"
TEMPLATES = {"trimming": TRIMMING, "chatml": CHATML, "llama": LLAMA, "parts": PARTS, "tools": TOOLS}

CHAT = [
    {"role": "user", "content": " Hi! "},
    {"role": "assistant", "content": "Hello é<"},
    {"role": "user", "content": "x"},
]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def template_of(source: str, **variables: str) -> ChatTemplate:
    return ChatTemplate({"default": source}, variables)


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


@pytest.mark.compile
@pytest.mark.parametrize("name", TEMPLATES)
def test_renders_what_transformers_renders(name: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    write_byte_level(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATES[name])
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path), ChatTemplate.from_directory(tmp_path)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"é": [1, "<"]}}}
    chats: list[list[dict[str, Any]]] = [CHAT, CHAT[:1], [*CHAT[:1], {"role": "assistant", "content": "half done "}]]
    if name == "parts":
        chats.append(user([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]))
    if name == "tools":
        chats.append([*CHAT, {"role": "assistant", "content": None, "tool_calls": [call]}])
    for chat in chats:
        for add in (True, False):
            for tools in (None, [TOOL]):
                expected = theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=add, tools=tools)
                assert ours.render(chat, add_generation_prompt=add, tools=tools) == expected
        if chat[-1]["role"] == "assistant" and chat[-1]["content"]:
            expected = theirs.apply_chat_template(chat, tokenize=False, continue_final_message=True)
            assert ours.render(chat, add_generation_prompt=False, continue_final_message=True) == expected


def test_a_conversation_is_rendered_with_the_models_tokens() -> None:
    text = template_of(LLAMA, bos_token="<s>", eos_token="</s>").render(CHAT)
    assert text == "<s>[INST] Hi! [/INST]\n Hello é< </s>[INST] x [/INST]\n"


def test_the_generation_prompt_is_optional() -> None:
    template = template_of(CHATML)
    assert template.render(user("a")) == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(user("a"), add_generation_prompt=False) == "<|im_start|>user\na<|im_end|>\n"


@pytest.mark.parametrize(("source", "text"), [(CHATML, "half "), (TRIMMING, "half")])
def test_a_final_message_is_continued_where_it_ends(source: str, text: str) -> None:
    chat = [*user("a"), {"role": "assistant", "content": "half "}]
    rendered = template_of(source).render(chat, add_generation_prompt=False, continue_final_message=True)
    assert rendered.endswith(text)
    assert chat[-1]["content"] == "half "


def test_parts_are_joined_unless_the_template_loops_over_them() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "one\ntwo<" in template_of(CHATML).render(user(parts))
    assert template_of(PARTS).render(user(parts)) == "user: <one> <two>"
    loop = "{% for part in messages[0]['content'] %}{{ part.text }};{% endfor %}"
    assert template_of(loop).render(user(parts)) == "one;two;"


def test_arguments_of_tool_calls_become_objects() -> None:
    call = {"function": {"name": "f", "arguments": '{"x": 1}'}}
    source = "{{ messages[0].tool_calls[0].function.arguments.x + 1 }}"
    chat = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    assert template_of(source).render(chat) == "2"
    call["function"]["arguments"] = "{"  # type: ignore[index]
    with pytest.raises(RequestError, match="JSON"):
        template_of(source).render(chat)


def test_null_content_is_not_the_word_none() -> None:
    assert template_of("[{{ messages[0].content }}]").render([{"role": "assistant", "content": None}]) == "[]"


def test_kwargs_reach_the_template_but_cannot_replace_its_input() -> None:
    template = template_of("{{ messages[0].content }}{% if enable_thinking %} think{% endif %}")
    assert template.render(user("a"), kwargs={"enable_thinking": True}) == "a think"
    with pytest.raises(RequestError) as caught:
        template.render(user("a"), kwargs={"messages": []})
    assert caught.value.param == "chat_template_kwargs"


FAILURES = {
    "raise_exception": ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
    "undefined": ("{{ messages[0].nothing.more }}", "nothing"),
    "syntax": ("{% if %}", "Expected an expression"),
    "type_error": ("{{ 'a' + 1 }}", "str"),
    "sandbox": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "mutation": ("{{ messages.append(1) }}", "unsafe"),
    "endless": ("{% for i in range(10 ** 9) %}{{ i }}{% endfor %}", "range"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_template_refuses_the_request_in_its_own_words(name: str) -> None:
    source, words = FAILURES[name]
    with pytest.raises(RequestError, match=words) as caught:
        template_of(source).render(user("a"))
    assert caught.value.code == "chat_template_error"


def test_output_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_OUTPUT_CHARACTERS", 100)
    source = "{% for i in range(99999) %}xxxxxxxx{% endfor %}"
    with pytest.raises(RequestError, match="too long"):
        template_of(source).render(user("a"))


REFUSED: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
    ("empty", [], {}),
    ("image", user([{"type": "image_url", "image_url": {"url": "x"}}]), {}),
    ("number", user(5), {}),
    ("part without text", user([{"type": "text"}]), {}),
    ("both", [{"role": "assistant", "content": "a"}], {"continue_final_message": True}),
    ("user last", user("a"), {"continue_final_message": True, "add_generation_prompt": False}),
    ("nothing to continue", [{"role": "assistant"}], {"continue_final_message": True, "add_generation_prompt": False}),
]


@pytest.mark.parametrize(("chat", "options"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_bad_conversations_are_refused(chat: list[dict[str, Any]], options: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        template_of(CHATML).render(chat, **options)


def test_content_that_is_not_text_is_named() -> None:
    with pytest.raises(RequestError) as caught:
        template_of(CHATML).render([*user("a"), *user([{"type": "input_audio"}])])
    assert (caught.value.code, caught.value.param) == ("unsupported_content", "messages[1].content")


def test_a_message_that_the_template_drops_cannot_be_continued() -> None:
    with pytest.raises(RequestError, match="drops"):
        template_of("fixed").render(
            [{"role": "assistant", "content": "a"}], add_generation_prompt=False, continue_final_message=True
        )


def write(directory: Path, files: dict[str, str]) -> ChatTemplate:
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(content)
    return ChatTemplate.from_directory(directory)


NAMED = json.dumps({"chat_template": [{"name": n, "template": n} for n in ("default", "tool_use")]})
PLACES: list[tuple[dict[str, str], str, str]] = [
    ({"chat_template.jinja": "file", "tokenizer_config.json": '{"chat_template": "config"}'}, "file", "file"),
    ({"tokenizer_config.json": '{"chat_template": "config"}'}, "config", "config"),
    ({"chat_template.json": '{"chat_template": "old"}'}, "old", "old"),
    ({"tokenizer_config.json": NAMED}, "default", "tool_use"),
    ({"chat_template.jinja": "file", "chat_templates/tool_use.jinja": "named"}, "file", "named"),
]


@pytest.mark.parametrize(("files", "plain", "with_tools"), PLACES)
def test_templates_are_found_where_checkpoints_keep_them(
    files: dict[str, str], plain: str, with_tools: str, tmp_path: Path
) -> None:
    template = write(tmp_path, files)
    assert template.render(user("a")) == plain
    assert template.render(user("a"), tools=[TOOL]) == with_tools


def test_special_tokens_come_from_the_tokenizer_config(tmp_path: Path) -> None:
    config = {"bos_token": {"content": "<b>"}, "eos_token": "<e>", "pad_token": None}
    template = write(
        tmp_path,
        {
            "tokenizer_config.json": json.dumps(config),
            "chat_template.jinja": "{{ bos_token }}{{ eos_token }}{{ pad_token }}",
        },
    )
    assert template.render(user("a")) == "<b><e>"


def test_a_model_without_a_template_says_so(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        ChatTemplate.from_directory(tmp_path).render(user("a"))
    assert caught.value.code == "chat_template_missing"


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set r = range(99999) | list %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    ],
)
def test_a_template_that_never_ends_is_stopped(source: str) -> None:
    template = ChatTemplate({"default": source}, {}, time_limit_s=0.2)
    began_s = time.monotonic()
    with pytest.raises(RequestError, match="took too long"):
        template.render([{"role": "user", "content": "hi"}])
    assert time.monotonic() - began_s < 5.0


def test_the_time_limit_is_each_conversations_own() -> None:
    template = ChatTemplate({"default": "{% for m in messages %}{{ m.content }}{% endfor %}"}, {}, time_limit_s=0.2)
    for _ in range(3):
        assert template.render([{"role": "user", "content": "hi"}]) == "hi"
        time.sleep(0.1)


def test_loops_keep_their_variables_beside_the_clock() -> None:
    source = (
        "{% for m in messages if m.role == 'user' %}{{ loop.index0 }}{{ loop.last }}{{ m.content }}"
        "{% if m.content == 'b' %}{% break %}{% endif %}{% else %}none{% endfor %}"
    )
    template = ChatTemplate({"default": source}, {})
    messages = [{"role": role, "content": content} for role, content in (("user", "a"), ("system", "x"), ("user", "b"))]
    assert template.render(messages) == "0Falsea1Trueb"
    assert template.render([{"role": "system", "content": "x"}]) == "none"


def test_arguments_nested_without_end_are_refused() -> None:
    template = ChatTemplate({"default": "{{ messages[0].tool_calls[0].function.arguments | tojson }}"}, {})
    call = {"function": {"name": "f", "arguments": "[" * 100_000 + "]" * 100_000}}
    with pytest.raises(RequestError, match="nested too deep") as caught:
        template.render([{"role": "assistant", "tool_calls": [call]}])
    assert caught.value.param == "messages[0].tool_calls"
