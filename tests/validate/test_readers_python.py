"""Python files are read by their syntax tree and never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmpack.validate.model import ModelPy
from llmpack.validate.readers.model_py import read_model_py
from llmpack.validate.readers.python_kwargs import read_kwargs
from llmpack.validate.readers.read import read_paths
from tests.validate.reading import bytes_at, failure_of, read_one, setting_of, values_of, write

SCRIPT = """from vllm import AsyncEngineArgs
model_id = "meta/x"
batch = 4
twice = 1
twice = 2
engine_args = AsyncEngineArgs(
  model=model_id,
  device="rbln",
  max_num_seqs=batch,
  block_size=twice,
  max_model_len=4096,  # the compiled length
)
"""


def test_keyword_arguments_with_places(tmp_path: Path) -> None:
    config = read_one(write(tmp_path / "run.py", SCRIPT))
    assert (config.kind, config.origin, config.target) == ("kwargs", "python", "vllm-rbln")
    assert config.location.line == 6
    setting = setting_of(config, "max_model_len")
    assert (setting.value, setting.location.line, setting.location.column) == (4096, 11, 17)
    assert bytes_at(config, setting.span) == "4096"
    assert bytes_at(config, setting.key_span) == "max_model_len"
    assert bytes_at(config, setting.entry_span) == ",\n  max_model_len=4096"
    assert bytes_at(config, setting_of(config, "device").entry_span) == 'device="rbln",\n  '


def test_a_name_that_is_bound_once_is_known_but_not_replaced(tmp_path: Path) -> None:
    config = read_one(write(tmp_path / "run.py", SCRIPT))
    assert (setting_of(config, "max_num_seqs").value, setting_of(config, "max_num_seqs").span) == (4, None)
    assert setting_of(config, "model").value == "meta/x"
    assert not setting_of(config, "block_size").is_known


def test_positional_model_unpacked_literals_and_our_own_engine(tmp_path: Path) -> None:
    text = 'from llmpack import LLM\nLLM("é/m", **{"max_num_seqs": 2}, seed=f(), **other)\n'
    config = read_one(write(tmp_path / "run.py", text))
    assert config.target == "llmpack"
    assert values_of(config) == {"model": "é/m", "max_num_seqs": 2, "seed": None}
    assert bytes_at(config, setting_of(config, "max_num_seqs").span) == "2"
    assert not setting_of(config, "seed").is_known


def test_our_engine_by_its_module(tmp_path: Path) -> None:
    assert read_one(write(tmp_path / "run.py", "import llmpack\nllmpack.LLM(model='m')\n")).target == "llmpack"


@pytest.mark.parametrize(
    ("imports", "call", "count"),
    [
        ("from vllm import LLM", "LLM(seed=1)", 1),
        ("import vllm as v", "v.LLM(seed=1)", 1),
        ("from llmpack.api import LLM as Model, LLM", "LLM(seed=1)", 1),
        ("", "LLM(seed=1)", 1),
        ("from crewai import LLM", "LLM(seed=1)", 0),
        ("import tensorrt_llm as t", "t.llmapi.LLM(seed=1)", 0),
    ],
)
def test_only_an_engines_own_classes_count(tmp_path: Path, imports: str, call: str, count: int) -> None:
    path = write(tmp_path / "run.py", f"{imports}\nx = {call}\n")
    assert len(read_paths([path]).configs) == count


def test_plain_keyword_arguments() -> None:
    config = read_kwargs({"max_num_seqs": 4, "device": "rbln"})
    assert (config.kind, config.origin, config.path) == ("kwargs", "api", None)
    assert [(item.name, item.value, item.span) for item in config.settings] == [
        ("max_num_seqs", 4, None),
        ("device", "rbln", None),
    ]


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = write(tmp_path / "run.py", f"open({str(mark)!r}, 'w')\nLLM(model='x')\n")
    read_one(path)
    read_model_py(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("LLM(model='x'", "line 1, column 1: not Python"),
        ("x = 1\nLLM(model=)", "line 2, column 1: not Python"),
        ("LLM(a=" + "(" * 500, "not Python"),
        ("print('no engine')", "no serving config"),
        ("AsyncEngineArgs(**json.load(file))", "no serving config"),
        (b"LLM(model='\xff')", "not UTF-8"),
    ],
)
def test_broken_in_one_way(tmp_path: Path, content: str | bytes, message: str) -> None:
    assert message in failure_of(write(tmp_path / "run.py", content))


def _facts(tmp_path: Path, body: str) -> ModelPy:
    return read_model_py(write(tmp_path / "model.py", body))


def test_tensor_names_that_are_read_and_written(tmp_path: Path) -> None:
    facts = _facts(
        tmp_path,
        """
NAME = "prompt"
a = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
b = pb_utils.get_input_tensor_by_name(request, name=NAME)
out = pb_utils.Tensor("text", a)
more = pb_utils.Tensor.from_dlpack("logits", b)
not_ours = torch.Tensor("no")
""",
    )
    assert [(named.name, named.location.line) for named in facts.reads] == [("TEXT", 3), ("prompt", 4)]
    assert [named.name for named in facts.writes] == ["text", "logits"]
    assert facts.reads_are_complete
    assert facts.writes_are_complete


def test_computed_names_leave_the_list_incomplete(tmp_path: Path) -> None:
    facts = _facts(tmp_path, "for n in names:\n    pb_utils.Tensor(n, x)\n    get_input_tensor_by_name(r, n)\n")
    assert (facts.reads, facts.writes) == ((), ())
    assert not facts.reads_are_complete
    assert not facts.writes_are_complete


def test_tensors_for_other_models_are_no_outputs(tmp_path: Path) -> None:
    facts = _facts(
        tmp_path,
        """
q = pb_utils.InferenceRequest(inputs=[pb_utils.Tensor("ids", x)])
r = pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("text", y)])
""",
    )
    assert [named.name for named in facts.writes] == ["text"]
    assert not facts.writes_are_complete


@pytest.mark.parametrize(
    ("signature", "is_wrong"),
    [("self", False), ("self, args", True), ("self, args=None", False), ("self, *args", False), ("self, *, a", True)],
)
def test_signature_of_finalize(tmp_path: Path, signature: str, is_wrong: bool) -> None:
    facts = _facts(tmp_path, f"class TritonPythonModel:\n    def finalize({signature}):\n        pass\n")
    assert (facts.finalize_location is not None) == is_wrong
    if facts.finalize_location:
        assert facts.finalize_location.line == 2


@pytest.mark.parametrize(
    ("line", "what", "is_empty"),
    [
        ('huggingface_hub.login(token="")', "login(token=...)", True),
        ('login("hf_abcdefghijklmnopqrst")', "login(token=...)", False),
        ('AutoModel.from_pretrained(m, use_auth_token="x")', "from_pretrained(use_auth_token=...)", False),
        ('os.environ["HF_TOKEN"] = "x"', "HF_TOKEN = ...", False),
        ('print("hf_abcdefghijklmnopqrst")', "a token", False),
    ],
)
def test_secrets_are_found_and_not_kept(tmp_path: Path, line: str, what: str, is_empty: bool) -> None:
    (secret,) = _facts(tmp_path, line).secrets
    assert (secret.what, secret.is_empty, secret.location.line) == (what, is_empty, 1)
    assert "hf_abc" not in repr(secret)


@pytest.mark.parametrize("line", ['tokenizer.pad_token = "[PAD]"', "login(token=os.environ['HF_TOKEN'])", "login()"])
def test_no_secret(tmp_path: Path, line: str) -> None:
    assert _facts(tmp_path, line).secrets == ()
