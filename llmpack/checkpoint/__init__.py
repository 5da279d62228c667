"""Reads a model as published: a Hugging Face directory, a hub repository or a .gguf file."""
