"""The numeric proof: compiled programs against transformers."""
