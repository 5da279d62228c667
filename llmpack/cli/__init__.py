"""The command line: the only place that catches errors and talks to a person."""
