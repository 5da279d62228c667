"""For each rule configs that pass and configs that fail it, with what must be said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from llmpack.validate.facts import ArtifactFacts, ArtifactProblem
from llmpack.validate.model import (
    Container,
    DynamicBatching,
    EnsembleStep,
    InstanceGroup,
    JsonValue,
    Location,
    MapEntry,
    ModelPy,
    Named,
    Port,
    Secret,
    ServingConfig,
    Setting,
    Target,
    TextDefect,
    TritonModel,
    TritonTensor,
)
from llmpack.validate.readers.python_kwargs import read_kwargs
from llmpack.validate.rules.rule import Context, PathState

HERE = Location("repo/m/config.pbtxt", 1, 1)
FIXED = ArtifactFacts(
    kind="optimum-rbln",
    path="/artifact",
    fact_file="rbln_config.json",
    is_fixed_shape=True,
    batch_size=4,
    max_seq_len=4096,
    kv_block_size=4096,
    max_num_batched_tokens=4096,
    tensor_parallel_size=4,
    num_attention_heads=32,
    devices=("rbln",),
    dtype="float16",
    quantization="none",
    kv_cache_dtype="float16",
    model_id="meta-llama/Llama-2-7b-chat-hf",
    revision="a" * 40,
    vocab_size=32000,
    features=frozenset(),
    checked_topics=frozenset({"runtime-range", "files", "tokenizer", "machine"}),
)
OURS = replace(
    FIXED,
    kind="llmpack",
    fact_file="llmpack.json",
    is_fixed_shape=False,
    max_num_batched_tokens=None,
    prefill_buckets=(32, 512),
    tensor_parallel_size=1,
    devices=("cpu",),
    dtype="float32",
    kv_cache_dtype="float32",
)
UNKNOWN = ArtifactFacts(kind="mlc-llm", path="/artifact", fact_file="mlc-chat-config.json", is_fixed_shape=False)


@dataclass(frozen=True, slots=True)
class Case:
    """One config or artifact and the outcome of one rule.

    Attributes:
        findings: How many there are.
        unknown: How many things are not checked.
        says: Words that a message or reason holds.
    """

    name: str
    config: ServingConfig | ArtifactFacts
    facts: ArtifactFacts | None = FIXED
    findings: int = 0
    unknown: int = 0
    says: str = ""
    context: Context = field(default_factory=Context)


def kwargs(target: Target = "vllm", **values: JsonValue) -> ServingConfig:
    return replace(read_kwargs(values), target=target)


def yaml_file(**values: JsonValue) -> ServingConfig:
    """The file of `vllm serve --config`."""
    return replace(kwargs(**values), origin="file")


def command(target: Target = "vllm", *flags: tuple[str, JsonValue]) -> ServingConfig:
    settings = tuple(
        Setting(name, value, "--" + name.replace("_", "-"), Location("run.sh", 1, 1, name)) for name, value in flags
    )
    return ServingConfig("command-line", "shell", "run.sh", target, Location("run.sh", 1, 1), settings)


def with_variable(config: ServingConfig, name: str, value: str) -> ServingConfig:
    return replace(config, environment=(Setting(name, value, name, Location("run.sh", 1, 1, name)),))


def unknown_value(config: ServingConfig) -> ServingConfig:
    return replace(config, settings=tuple(replace(setting, is_known=False) for setting in config.settings))


def tensor(name: str, data_type: str = "TYPE_STRING", dims: tuple[int, ...] = (-1,), **more: bool) -> TritonTensor:
    return TritonTensor(name, data_type, dims, HERE, **more)


def triton(change: Callable[[TritonModel], TritonModel] = lambda model: model, *others: TritonModel) -> ServingConfig:
    model = TritonModel(
        name="m",
        directory="repo/m",
        backend="python",
        platform="",
        max_batch_size=0,
        location=HERE,
        inputs=(tensor("prompt"),),
        outputs=(tensor("generated_text"),),
        version_dirs=("1",),
        version_files=("1/model.py",),
    )
    changed = change(model)
    return ServingConfig(
        "config.pbtxt",
        "file",
        "repo/m/config.pbtxt",
        "triton-python",
        HERE,
        triton=changed,
        siblings=(changed, *others),
    )


def vllm_model(**changes: object) -> ServingConfig:
    values = {
        "backend": "vllm",
        "inputs": (tensor("text_input"),),
        "outputs": (tensor("text_output"),),
        "version_files": ("1/model.json",),
        **changes,
    }
    return triton(lambda model: replace(model, **values))  # type: ignore[arg-type]


TOKENIZER = TritonModel(
    name="tokenizer",
    directory="repo/tokenizer",
    backend="python",
    platform="",
    max_batch_size=0,
    location=HERE,
    inputs=(tensor("prompt"),),
    outputs=(tensor("input_ids", "TYPE_INT64", (-1, -1)),),
    version_dirs=("1",),
    version_files=("1/model.py",),
)


def ensemble(step_input: str = "prompt", **changes: object) -> ServingConfig:
    step = EnsembleStep(
        "tokenizer",
        -1,
        (MapEntry(step_input, "prompt", HERE),),
        (MapEntry("input_ids", "ids", HERE),),
        HERE,
    )
    values = {
        "backend": "",
        "platform": "ensemble",
        "outputs": (tensor("ids", "TYPE_INT64", (-1, -1)),),
        "ensemble_steps": (step,),
        "version_files": ("1/.keep",),
        **changes,
    }
    return triton(lambda model: replace(model, **values), TOKENIZER)  # type: ignore[arg-type]


def contained(port: str | None = None, **changes: object) -> ServingConfig:
    container = Container("nvcr.io/nvidia/tritonserver:24.01-vllm-python-py3", HERE, shm_size="1g")
    flags = () if port is None else (("port", port),)
    return replace(command("vllm", *flags), container=replace(container, **changes))  # type: ignore[arg-type]


def problem(topic: str) -> ArtifactFacts:
    return replace(FIXED, problems=(ArtifactProblem(topic, "is wrong", "file", "x", "y"),))  # type: ignore[arg-type]


PUBLISHED = (Port(8000, 8000, HERE),)
RBLN = {"device": "rbln", "compiled_model_dir": "/artifact"}
OLD_LLAMA = "meta-llama/Llama-2-7b-chat-hf"
THERE = PathState("/artifact", is_artifact=True, is_the_artifact=True)

CASES: dict[str, list[Case]] = {
    "LP101": [
        Case("equal", kwargs(max_num_seqs=4)),
        Case("fewer with llmpack", kwargs("llmpack", max_num_seqs=2), OURS),
        Case("not given", kwargs()),
        Case("as text in a command", command("vllm", ("max_num_seqs", "4"))),
        Case("fewer with fixed shapes", kwargs(max_num_seqs=2), findings=1, says="must be the compiled 4"),
        Case("more", kwargs("llmpack", max_num_seqs=8), OURS, findings=1, says="at most 4"),
        Case("none at all", kwargs("llmpack", max_num_seqs=0), OURS, findings=1),
        Case("not given to an engine that needs it", kwargs("vllm-rbln", **RBLN), findings=1, says="not given"),
        Case("fact unknown", kwargs(max_num_seqs=4), UNKNOWN, unknown=1, says="mlc-chat-config.json"),
        Case("no artifact", kwargs(max_num_seqs=4), None, unknown=1, says="--artifact"),
        Case("variable", unknown_value(command("vllm", ("max_num_seqs", "$N"))), unknown=1, says="variable"),
    ],
    "LP102": [
        Case("equal", kwargs(max_model_len=4096)),
        Case("smaller with llmpack", kwargs("llmpack", max_model_len=1024), OURS),
        Case("4K is 4096", command("vllm", ("max_model_len", "4K"))),
        Case("4k is 4000", command("vllm", ("max_model_len", "4k")), findings=1),
        Case("smaller", kwargs(max_model_len=2048), findings=1),
        Case("larger with llmpack", kwargs("llmpack", max_model_len=4097), OURS, findings=1, says="at most 4096"),
    ],
    "LP103": [
        Case("equal", kwargs(max_num_batched_tokens=4096)),
        Case("room for the largest bucket", kwargs("llmpack", max_num_batched_tokens=512), OURS),
        Case("more than that", kwargs("llmpack", max_num_batched_tokens=100_000), OURS),
        Case("llmpack's artifact behind vllm-rbln", kwargs("vllm-rbln", max_num_batched_tokens=4096, **RBLN), OURS),
        Case("other number", kwargs(max_num_batched_tokens=2048), findings=1),
        Case("no room", kwargs("llmpack", max_num_batched_tokens=511), OURS, findings=1, says="512 tokens"),
        Case("fact unknown", kwargs(max_num_batched_tokens=4096), UNKNOWN, unknown=1),
    ],
    "LP104": [
        Case("equal", kwargs(block_size=4096)),
        Case("as long as what is served", kwargs("llmpack", block_size=1024, max_model_len=1024), OURS),
        Case("smaller", kwargs(block_size=16), findings=1, says="must be the compiled 4096"),
        Case("smaller with llmpack", kwargs("llmpack", block_size=16), OURS, findings=1),
    ],
    "LP105": [
        Case("there", kwargs("vllm-rbln", **RBLN), context=Context(paths={"/artifact": THERE})),
        Case("relative where the command runs", kwargs(compiled_model_dir="a"), context=Context(paths={"a": THERE})),
        Case("hub id", kwargs(model=OLD_LLAMA)),
        Case("nowhere", kwargs("vllm-rbln", **RBLN), findings=1, says="does not exist"),
        Case("placeholder", kwargs(compiled_model_dir="/ABSOLUTE/PATH/TO/x"), findings=1, says="placeholder"),
        Case("not given", kwargs("vllm-rbln", device="rbln"), findings=1, says="nothing to serve"),
        Case(
            "no artifact",
            kwargs(compiled_model_dir="/etc"),
            context=Context(paths={"/etc": PathState("/etc")}),
            findings=1,
            says="no compiled artifact",
        ),
        Case(
            "unreadable artifact",
            kwargs(compiled_model_dir="/b"),
            context=Context(paths={"/b": PathState("/b", is_artifact=True, problem="not valid JSON")}),
            findings=1,
            says="cannot be read: not valid JSON",
        ),
        Case(
            "another artifact",
            kwargs(compiled_model_dir="/b"),
            context=Context(paths={"/b": replace(THERE, is_the_artifact=False)}),
            findings=1,
            says="another artifact",
        ),
        Case(
            "relative in a file",
            replace(kwargs(compiled_model_dir="a"), kind="model.json"),
            context=Context(paths={"a": THERE}),
            findings=1,
            says="relative",
        ),
        Case("in a container", replace(kwargs(compiled_model_dir="/a"), is_containerised=True), unknown=1),
        Case("model that is a path", kwargs(model="/models/x"), findings=1, says="does not exist"),
    ],
    "LP106": [
        Case("same", kwargs(model=OLD_LLAMA, tokenizer=OLD_LLAMA, revision="a" * 40)),
        Case("local copy", kwargs(model="hub/tiny"), replace(FIXED, model_id="tiny", is_hub_model=False)),
        Case("other model", kwargs(model="org/other"), findings=1, says=OLD_LLAMA),
        Case("other tokenizer", kwargs(model=OLD_LLAMA, tokenizer="org/other"), findings=1),
        Case("other commit", kwargs(revision="b" * 40), findings=1, says="another commit"),
        Case("branch", kwargs(revision="main"), unknown=1, says="hub"),
        Case("source unknown", kwargs(model="a/b"), UNKNOWN, unknown=1),
    ],
    "LP107": [
        Case("equal", kwargs(tensor_parallel_size=4)),
        Case("enough devices", with_variable(command(), "RBLN_DEVICES", "0,1,2,3")),
        Case("other number", kwargs(tensor_parallel_size=2), findings=1, says="4 ranks"),
        Case("number that cannot be", kwargs(tensor_parallel_size=3), findings=1, says="32 heads"),
        Case("too few devices", with_variable(command(), "RBLN_DEVICES", "0,1"), findings=1, says="2 devices"),
        Case("fact unknown", kwargs(tensor_parallel_size=2), UNKNOWN, unknown=1),
    ],
    "LP108": [
        Case("same", kwargs(device="rbln")),
        Case("left to the engine", kwargs(device="auto")),
        Case("with an index", kwargs(device="rbln:0")),
        Case("a script for vLLM's plugin", kwargs("llmpack", device="rbln"), OURS, findings=1, says="taken for"),
        Case("other", kwargs(device="cuda"), findings=1, says="rbln"),
        Case("fact unknown", kwargs(device="cuda"), UNKNOWN, unknown=1),
    ],
    "LP109": [
        Case("same", kwargs(dtype="half", kv_cache_dtype="float16", quantization=None)),
        Case("left to the engine", kwargs(dtype="auto", kv_cache_dtype="auto")),
        Case("other dtype", kwargs(dtype="bfloat16"), findings=1, says="float16"),
        Case("quantised", kwargs(quantization="awq"), findings=1),
        Case("other cache", kwargs(kv_cache_dtype="fp8"), findings=1),
        Case("fact unknown", kwargs(dtype="float16"), UNKNOWN, unknown=1),
    ],
    "LP110": [
        Case("known", kwargs(max_num_seqs=4, enforce_eager=True, gpu_memory_utilization=1)),
        Case("known to the plugin", kwargs("vllm-rbln", **RBLN)),
        Case("flags", command("vllm", ("max_num_seqs", "4"), ("enforce_eager", True), ("api_key", "$K"))),
        Case("dotted", command("vllm", ("compilation_config.level", "3"))),
        Case("misspelled", kwargs(max_num_seq=4), findings=1, says="max_num_seqs"),
        Case("removed", kwargs(disable_log_requests=True), findings=1, says="0.10.1 removed"),
        Case("removed long ago", kwargs(device="cpu"), findings=1, says="removed device"),
        Case(
            "not removed yet",
            kwargs(disable_log_requests=True),
            context=Context(releases={"vllm": "0.9.1"}),
        ),
        Case(
            "not known yet",
            kwargs(enable_log_requests=True),
            context=Context(releases={"vllm": "0.9.1"}),
            findings=1,
            says="yet",
        ),
        Case("number as text", kwargs(max_num_seqs="4"), findings=1, says="whole number"),
        Case("number with a point", kwargs(max_num_seqs=4.0), findings=1),
        Case("truth value as text", kwargs(enforce_eager="true"), findings=1, says="true or false"),
        Case("truth value for a number", kwargs(max_num_seqs=True), findings=1),
        Case("no number in a command", command("vllm", ("max_num_seqs", "four")), findings=1),
        Case("point in a command", command("vllm", ("max_num_seqs", "4.0")), findings=1),
        Case("flag with a value", command("vllm", ("enforce_eager", "true")), findings=1),
        Case("server's flags and numbers as text in YAML", yaml_file(port=1, max_num_seqs="4", enforce_eager=True)),
        Case("misspelled in YAML", yaml_file(max_num_seq=4), findings=1, says="max_num_seqs"),
        Case("number with a point in YAML", yaml_file(max_num_seqs=4.0), findings=1, says="whole number"),
        Case("truth value for a number in YAML", yaml_file(max_num_seqs=True), findings=1, says="whole number"),
    ],
    "LP111": [
        Case("once", command("vllm", ("max_num_seqs", "4"))),
        Case("twice the same", command("vllm", ("max_num_seqs", "4"), ("max_num_seqs", "4"))),
        Case("repeatable", command("vllm", ("api_key", "a"), ("api_key", "b"))),
        Case("twice", command("vllm", ("max_num_seqs", "4"), ("max_num_seqs", "8")), findings=1, says="already given"),
        Case(
            "beside the arguments",
            with_variable(command("vllm", ("max_num_seqs", "4")), "VLLM_MAX_NUM_SEQS", "8"),
            findings=1,
            says="VLLM_MAX_NUM_SEQS",
        ),
        Case("variable of another meaning", with_variable(command("vllm", ("port", "8000")), "VLLM_PORT", "9000")),
    ],
    "LP112": [
        Case("off", kwargs(enable_lora=False, pipeline_parallel_size=1, enable_prefix_caching=False)),
        Case("compiled in", kwargs(enable_lora=True), replace(FIXED, features=frozenset({"lora"}))),
        Case("adapters", kwargs(enable_lora=True), findings=1, says="without lora"),
        Case("stages", command("vllm", ("pipeline_parallel_size", "2")), findings=1),
        Case("speculation", kwargs(speculative_config={"model": "x"}), findings=1),
        Case("prefix cache", command("vllm", ("enable_prefix_caching", True)), findings=1),
        Case("fact unknown", kwargs(enable_lora=True), UNKNOWN, unknown=1),
    ],
    "LP120": [
        Case("sound", triton()),
        Case("name left out", triton(lambda model: replace(model, name=None))),
        Case("config alone", triton(lambda model: replace(model, name="x", version_dirs=(), is_repository=False))),
        Case("vLLM", vllm_model(decoupled=True)),
        Case("ensemble with a placeholder", ensemble()),
        Case("other name", triton(lambda model: replace(model, name="x")), findings=1, says="directory, m"),
        Case(
            "no version", triton(lambda model: replace(model, version_dirs=(), version_files=())), findings=1, says="1/"
        ),
        Case("empty version", triton(lambda model: replace(model, version_files=())), findings=1, says="no model"),
        Case("empty ensemble", ensemble(version_files=()), findings=1, says="git"),
        Case(
            "model.py missing",
            triton(lambda model: replace(model, version_files=("1/vocab.txt",))),
            findings=1,
            says="1/model.py is missing",
        ),
        Case("vLLM with batches", vllm_model(max_batch_size=8), findings=1, says="max_batch_size 0"),
        Case("vLLM coupled", vllm_model(decoupled=False), findings=1, says="decoupled"),
        Case("vLLM twice", vllm_model(instance_groups=(InstanceGroup("KIND_MODEL", 2, (), HERE),)), findings=1),
        Case(
            "preferred batch too large",
            triton(
                lambda model: replace(model, max_batch_size=4, dynamic_batching=DynamicBatching((2, 8), None, HERE))
            ),
            findings=1,
            says="preferred",
        ),
    ],
    "LP121": [
        Case("sound", triton()),
        Case("vLLM's contract", vllm_model()),
        Case(
            "model.py as declared",
            triton(
                lambda model: replace(
                    model, model_py=ModelPy("model.py", (Named("prompt", HERE),), (Named("generated_text", HERE),))
                )
            ),
        ),
        Case("closed ensemble", ensemble()),
        Case("step from elsewhere", replace(ensemble(is_repository=False), siblings=()), unknown=1),
        Case("foreign input", vllm_model(inputs=(tensor("PROMPT"),)), findings=1, says="text_input"),
        Case("wrong type", vllm_model(inputs=(tensor("stream", "TYPE_STRING"),)), findings=1, says="TYPE_BOOL"),
        Case("wrong rank", vllm_model(inputs=(tensor("text_input", dims=(-1, -1)),)), findings=1, says="one dimension"),
        Case(
            "newer than the release",
            vllm_model(inputs=(tensor("exclude_input_in_output", "TYPE_BOOL"),)),
            context=Context(releases={"triton": "24.01"}),
            findings=1,
            says="24.03",
        ),
        Case(
            "release unknown",
            vllm_model(inputs=(tensor("exclude_input_in_output", "TYPE_BOOL"),)),
            unknown=1,
            says="--triton-release",
        ),
        Case(
            "model.py reads another name",
            triton(lambda model: replace(model, model_py=ModelPy("model.py", (Named("TEXT", HERE),)))),
            findings=1,
            says="model.py reads TEXT, config.pbtxt declares prompt",
        ),
        Case(
            "model.py writes another name",
            triton(lambda model: replace(model, model_py=ModelPy("model.py", (), (Named("answer", HERE),)))),
            findings=2,
            says="never writes generated_text",
        ),
        Case(
            "finalize with arguments",
            triton(lambda model: replace(model, model_py=ModelPy("model.py", finalize_location=HERE))),
            findings=1,
            says="finalize",
        ),
        Case("step input", ensemble("TEXT"), findings=2, says="has no input TEXT"),
        Case("missing model", replace(ensemble(), siblings=()), findings=1, says="no model called tokenizer"),
        Case("open output", ensemble(outputs=(tensor("logits", "TYPE_FP32"),)), findings=1, says="no step produces"),
        Case("types differ", ensemble(outputs=(tensor("ids", "TYPE_INT32", (-1, -1)),)), findings=1, says="TYPE_INT64"),
        Case("shapes differ", ensemble(outputs=(tensor("ids", "TYPE_INT64", (-1,)),)), findings=1, says="shape"),
        Case(
            "a classifier's output",
            triton(
                lambda model: replace(
                    model,
                    inputs=(tensor("input_ids", "TYPE_INT64", (-1, -1)),),
                    outputs=(tensor("output_0", "TYPE_FP32", (-1, 2)),),
                )
            ),
            findings=1,
            says="classifier",
        ),
        Case(
            "logits",
            triton(
                lambda model: replace(
                    model,
                    inputs=(tensor("input_ids", "TYPE_INT64", (-1, -1)),),
                    outputs=(tensor("logits", "TYPE_FP32", (-1, -1, 32000)),),
                )
            ),
        ),
        Case(
            "embeddings beside the artifact",
            triton(
                lambda model: replace(
                    model,
                    inputs=(tensor("input_ids", "TYPE_INT64", (-1, -1)),),
                    outputs=(tensor("sentence_embedding", "TYPE_FP32", (-1, 384)),),
                )
            ),
        ),
        Case(
            "logits of who knows what",
            triton(
                lambda model: replace(
                    model,
                    inputs=(tensor("input_ids", "TYPE_INT64", (-1, -1)),),
                    outputs=(tensor("logits", "TYPE_FP32", (-1, 2)),),
                )
            ),
            None,
            unknown=1,
            says="language model's logits; no artifact",
        ),
        Case(
            "logits of another vocabulary",
            triton(
                lambda model: replace(
                    model,
                    inputs=(tensor("input_ids", "TYPE_INT64", (-1, -1)),),
                    outputs=(tensor("logits", "TYPE_FP32", (-1, -1, 300)),),
                )
            ),
            findings=1,
            says="32000",
        ),
    ],
    "LP122": [
        Case("plain", kwargs(model="a/b")),
        Case("shell variable", command("vllm", ("model", "${MODEL}"))),
        Case(
            "no-break space",
            replace(triton(), defects=(TextDefect("non-ascii", "\u00a0", HERE, None, " "),)),
            findings=1,
            says="U+00A0",
        ),
        Case("unrendered", kwargs(model="${model_dir}"), findings=1, says="template"),
        Case("double braces", kwargs(tokenizer="{{ tokenizer }}"), findings=1),
        Case("empty", kwargs(model=""), findings=1, says="empty"),
    ],
    "LP123": [
        Case("sound", triton()),
        Case(
            "batching with batches",
            triton(lambda model: replace(model, max_batch_size=8, dynamic_batching=DynamicBatching((), None, HERE))),
        ),
        Case(
            "GPU model", triton(lambda model: replace(model, instance_groups=(InstanceGroup("KIND_GPU", 1, (), HERE),)))
        ),
        Case(
            "batching without batches",
            triton(lambda model: replace(model, dynamic_batching=DynamicBatching((), None, HERE))),
            findings=1,
            says="max_batch_size is 0",
        ),
        Case(
            "ragged without batching",
            triton(lambda model: replace(model, inputs=(tensor("prompt", allow_ragged_batch=True),))),
            findings=1,
            says="allow_ragged_batch",
        ),
        Case(
            "tokenizer on a GPU",
            triton(lambda _: replace(TOKENIZER, instance_groups=(InstanceGroup("KIND_GPU", 1, (), HERE),))),
            findings=1,
            says="tokenizer",
        ),
        Case(
            "GPU for the CPU's artifact",
            triton(lambda model: replace(model, instance_groups=(InstanceGroup("KIND_GPU", 1, (), HERE),))),
            OURS,
            findings=1,
            says="CPU",
        ),
    ],
    "LP130": [
        Case("in range", FIXED),
        Case("out of range", problem("runtime-range"), findings=1),
        Case("not told", UNKNOWN, unknown=1),
    ],
    "LP131": [
        Case("whole", FIXED),
        Case("altered", problem("files"), findings=1),
        Case("not listed", UNKNOWN, unknown=1),
    ],
    "LP132": [
        Case("sound", FIXED),
        Case("outside the vocabulary", problem("tokenizer"), findings=1),
        Case("no tokenizer", UNKNOWN, unknown=1),
    ],
    "LP133": [
        Case("can", FIXED),
        Case("lacks", problem("machine"), findings=1),
        Case("not told", UNKNOWN, unknown=1),
    ],
    "LP140": [
        Case("enough", contained()),
        Case("host's memory", contained(shm_size=None, is_host_ipc=True)),
        Case("image of a Dockerfile", contained(shm_size=None, starts_container=False)),
        Case("published port", contained("8000", ports=PUBLISHED)),
        Case("docker's default", contained(shm_size=None), findings=1, says="/dev/shm"),
        Case("too little", contained(shm_size="64m"), findings=1),
        Case("port that is not published", contained("9000", ports=PUBLISHED), findings=1, says="9000"),
        Case("port twice", contained(ports=(*PUBLISHED, Port(8000, 8001, HERE))), findings=2, says="more than once"),
        Case("image before the contract", contained(image="tritonserver:23.08-vllm-py3"), findings=1, says="24.01"),
    ],
    "LP141": [
        Case("from a variable", unknown_value(command("vllm", ("api_key", "$KEY")))),
        Case("placeholder", command("vllm", ("api_key", "<key>"))),
        Case("literal key", command("vllm", ("api_key", "sesame")), findings=1, says="--api-key"),
        Case("token in an argument", command("vllm", ("model", "hf_" + "a" * 30)), findings=1),
        Case("in an env file", replace(command("vllm", ("hf_token", "x")), kind="env-file")),
        Case("token beside a command", with_variable(command(), "HF_TOKEN", "x"), findings=1, says="HF_TOKEN"),
        Case(
            "login in model.py",
            triton(
                lambda model: replace(
                    model, model_py=ModelPy("model.py", secrets=(Secret("login(token=...)", HERE, is_empty=True),))
                )
            ),
            findings=1,
            says="login(token=...)",
        ),
    ],
}
