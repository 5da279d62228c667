"""The rules: small pure functions over what was read, listed in `catalogue.py`."""
