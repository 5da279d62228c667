"""From a checkpoint to an artifact, phase by phase."""
