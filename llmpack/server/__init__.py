"""The OpenAI-compatible HTTP server. Imports neither torch nor the compiler."""
