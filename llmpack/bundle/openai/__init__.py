"""Bundles for OpenAI-compatible servers: launch files, container and service definitions, clients."""
