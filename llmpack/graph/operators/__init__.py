"""The operators that matter, named once for the decoder and lowered more than once: over slots and over whole rows."""
