"""The artifact directory: its manifest, how it is written once and how it is checked before use."""
