"""All rules, in order: what runs is what `llmpack explain` tells and the documentation lists."""

from __future__ import annotations

from llmpack.validate.rules import identity, limits, operations, settings, text, triton_layout, triton_tensors
from llmpack.validate.rules.artifact import check_topic
from llmpack.validate.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule(
        id="LP101",
        title="max_num_seqs and the compiled batch size",
        relation="== for fixed shapes, <= for llmpack's server",
        severity="error",
        needs=("batch_size",),
        check=limits.check_max_num_seqs,
        story="""\
A fixed-shape artifact has batch_size rows in its decode program and its cache. A server that admits more sequences
finds no row for them; one that admits fewer computes the empty rows all the same. vllm-rbln asks for the same number
and from 0.9.3 on overwrites yours without a word, so the capacity you planned with is not the one you get. llmpack's
server may use fewer slots than were compiled, never more.
Set max_num_seqs to the compiled batch_size, or compile again with another one.""",
    ),
    Rule(
        id="LP102",
        title="max_model_len and the compiled sequence length",
        relation="== for fixed shapes, <= for llmpack's server",
        severity="error",
        needs=("max_seq_len",),
        check=limits.check_max_model_len,
        story="""\
The compile fixed how many tokens, prompt and output together, a sequence may have. A server that promises more
accepts prompts which then fail, or writes past the cache; a client trims its prompts to a limit that does not exist.
Set max_model_len to the compiled max_seq_len.""",
    ),
    Rule(
        id="LP103",
        title="max_num_batched_tokens and the compiled step",
        relation="== max_seq_len or the prefill chunk for vllm-rbln, >= the largest prefill bucket for llmpack",
        severity="error",
        needs=("max_num_batched_tokens", "prefill_buckets"),
        check=limits.check_max_num_batched_tokens,
        story="""\
vllm-rbln prefills a whole prompt in one step and so needs max_num_batched_tokens equal to the compiled max_seq_len;
its releases from 0.11 on prefill in compiled chunks and take the chunk's size instead. llmpack prefills in chunks of
its buckets: a step must have room for the largest.
Set the value that the finding names.""",
    ),
    Rule(
        id="LP104",
        title="block_size and the blocks of the compiled cache",
        relation="== max_seq_len for slot caches, == the partition for paged ones",
        severity="error",
        needs=("kv_block_size",),
        check=limits.check_block_size,
        story="""\
A slot cache is one block per sequence, as long as the sequence may become; a paged one has blocks of the size that
the attention kernel was compiled for. The scheduler counts free blocks with block_size: with another number it
believes in room that is not there, or refuses requests that would fit. vllm-rbln overwrites a wrong value silently.
Set block_size to the compiled max_seq_len, or to the partition length of a paged artifact.""",
    ),
    Rule(
        id="LP105",
        title="the path of the artifact",
        relation="absolute, exists, is an artifact, is the artifact",
        severity="error",
        check=identity.check_paths,
        story="""\
A relative path in a model.json is taken from where the server was started, not from where the file lies. A path that
does not exist inside the container is taken for a hub id, and the error speaks of the hub; without any path the error
is that the compiled model path None does not exist.
Write the absolute path as the server will see it.""",
    ),
    Rule(
        id="LP106",
        title="model, tokenizer and revision of the source",
        relation="==",
        severity="error",
        needs=("model_id", "revision"),
        check=identity.check_source,
        story="""\
The server takes the tokenizer and the chat template from `model`; the weights come from the artifact. With two
different models both load, and the text is gibberish. No server checks this.
Name the model that was compiled, or compile the model that you name.""",
    ),
    Rule(
        id="LP107",
        title="tensor_parallel_size, devices and legal degrees",
        relation="== compiled; visible devices >= compiled",
        severity="error",
        needs=("tensor_parallel_size",),
        check=identity.check_tensor_parallel,
        story="""\
The weights were cut into ranks when the model was compiled. Another number of ranks cannot load them, and a number
that does not divide the attention heads could not even be compiled. A rank needs a device of its own: too few visible
ones and the server waits or dies while it starts.
Set tensor_parallel_size to the compiled number, or compile again.""",
    ),
    Rule(
        id="LP108",
        title="the device",
        relation="one of those the artifact was compiled for",
        severity="error",
        needs=("devices",),
        check=identity.check_device,
        story="""\
Compiled programs are code for one kind of device. On another they do not load, or the engine quietly loads the
original model there instead and leaves the artifact unused.
Set device to what the finding names.""",
    ),
    Rule(
        id="LP109",
        title="dtype, quantization and cache dtype",
        relation="==",
        severity="error",
        needs=("dtype", "quantization", "kv_cache_dtype"),
        check=identity.check_precision,
        story="""\
Precision is compiled in. A dtype in the serving config changes nothing in the programs, but some engines size the
cache by it, and its reader believes it.
Leave the setting out, say auto, or write what was compiled.""",
    ),
    Rule(
        id="LP110",
        title="known keys of the right type",
        relation="known to the engine's release; JSON type as it takes it",
        severity="error",
        check=settings.check_keys,
        story="""\
model.json goes to the engine's constructor as it is: an unknown key is a TypeError while the model loads, and a key
that was removed is an unknown one. Quoted numbers fail later, in arithmetic; the text "false" is true to Python.
Correct the spelling, or use what the named release offers instead.""",
    ),
    Rule(
        id="LP111",
        title="one setting, one value",
        relation="==",
        severity="error",
        check=settings.check_contradictions,
        story="""\
Of a setting that is given twice the last one counts, in command lines and in JSON, and dashes and underscores are the
same key. The value that people read and change may be the one that is ignored.
Keep one of them.""",
    ),
    Rule(
        id="LP112",
        title="features that were not compiled in",
        relation="absent",
        severity="error",
        needs=("features",),
        check=settings.check_features,
        story="""\
Speculative decoding, adapters, pipeline stages and a prefix cache change the compiled programs. Switched on for an
artifact without them they end in a bare assertion, or they do nothing.
Leave the setting out, or compile with the feature.""",
    ),
    Rule(
        id="LP120",
        title="Triton: directory, version, batch size, policy",
        relation="as the server expects",
        severity="error",
        check=triton_layout.check_layout,
        story="""\
A model is a directory whose name is the model's, with config.pbtxt and at least one numbered version in it. Version
directories of ensembles are empty, and git does not keep empty directories: after a clone the ensemble does not load.
The vLLM backend needs max_batch_size 0 and the decoupled policy, and one instance: each further one loads the model
again.
Move or rename what the finding names.""",
    ),
    Rule(
        id="LP121",
        title="Triton: tensor names, types and shapes",
        relation="== on both sides",
        severity="error",
        needs=("vocab_size",),
        check=triton_tensors.check_tensors,
        story="""\
A tensor has a name, a type and a shape in config.pbtxt, in the model, in the ensemble's maps and in the client. A
model.py that asks for an input the config does not declare gets None and fails with each request. The vLLM backend's
tensors are a contract that grew with its releases; an ONNX model's are those of its graph.
Use one name everywhere, and the type and shape of the side that cannot change.""",
    ),
    Rule(
        id="LP122",
        title="text that the server cannot read",
        relation="rendered, not empty, ASCII outside strings",
        severity="error",
        check=text.check_text,
        story="""\
A config copied from a web page may hold no-break spaces (U+00A0): they look like spaces, Python's parser accepts
them, and the server stops with "Interpreting non ascii codepoint 194". Templates leave ${...} behind when a variable
was forgotten; the server's error then names neither the file nor the variable.
Replace the characters, fill in the values.""",
    ),
    Rule(
        id="LP123",
        title="Triton: settings that do nothing, GPUs for CPU work",
        relation="has an effect",
        severity="warning",
        check=triton_layout.check_idle_settings,
        story="""\
dynamic_batching and allow_ragged_batch do nothing while max_batch_size is 0; the server accepts them silently and the
throughput does not come. KIND_GPU for a tokenizer or an artifact for the CPU makes one instance per GPU, and a host
without a GPU refuses the model.
Set max_batch_size, or take the block out; use KIND_CPU.""",
    ),
    Rule(
        id="LP130",
        title="the artifact and the runtime's version",
        relation="in the supported range; schema not newer",
        severity="error",
        check_artifact=check_topic("runtime-range"),
        story="""\
An artifact says which runtimes may load it. Outside that range operators may be missing or mean something else. A
manifest with a newer schema comes from a newer llmpack, and only that one knows what it says.
Install a runtime in the range, upgrade llmpack, or compile again.""",
    ),
    Rule(
        id="LP131",
        title="the artifact's files",
        relation="present, not empty, as compiled",
        severity="error",
        check_artifact=check_topic("files"),
        story="""\
Copies break off, git stores pointers in place of large files, and someone edits a config in place. What loads is then
not what was proven, if it loads at all.
Fetch the files (`git lfs pull`), copy the artifact again, or compile again.""",
    ),
    Rule(
        id="LP132",
        title="tokenizer, special tokens and chat template",
        relation="ids in the vocabulary; at least one end token; the template renders",
        severity="error",
        check_artifact=check_topic("tokenizer"),
        story="""\
An id outside the vocabulary reads a row that does not exist. Without an end token every answer runs to its length
limit. A chat template that does not render fails each chat request, and the server only then tells.
Correct the checkpoint's files and compile again.""",
    ),
    Rule(
        id="LP133",
        title="what the machine can do",
        relation="has all that the programs need",
        severity="error",
        check_artifact=check_topic("machine"),
        story="""\
Programs compiled for CPU features that this machine lacks die with SIGILL, without a message.
Serve on a machine that has them, or compile for this one.""",
    ),
    Rule(
        id="LP140",
        title="shared memory, ports, image",
        relation="enough, free, of the right release",
        severity="warning",
        check=operations.check_operations,
        story="""\
Docker gives a container 64 MB of /dev/shm, and tensors between processes travel through it. Two containers cannot have
the same port of the host, and a port that is not published reaches nobody. The image's tag decides which tensors the
vLLM backend has.
Start the container with --shm-size=1g, and correct the port or the tag.""",
    ),
    Rule(
        id="LP141",
        title="secrets in arguments and files",
        relation="absent",
        severity="warning",
        check=text.check_secrets,
        story="""\
A token in model.py is in the repository, in the image and in every backup; a key on the command line is in the process
list. Both are found by whoever looks.
Pass secrets as environment variables from a secret store, and revoke the one that was written down.""",
    ),
)
RULES_BY_ID = {rule.id: rule for rule in RULES}
