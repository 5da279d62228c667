"""Reads serving configs, with the place of every value; nothing that is read is ever run."""
