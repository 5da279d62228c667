"""Known engine arguments, per release of each engine."""
