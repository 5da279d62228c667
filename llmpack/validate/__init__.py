"""Checks any serving config against a compiled artifact; every fact remembers where it was written."""
