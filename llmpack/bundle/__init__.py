"""Bundles: everything that a server needs to serve an artifact, written from its manifest."""
