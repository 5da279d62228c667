"""Generation from Python under vLLM's names: `AsyncLLMEngine` streams, `LLM` waits. Import both from `llmpack`."""
