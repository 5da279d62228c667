"""Every shape decided before anything is built."""
