"""A report as text for people and programs."""
