"""Measurements: throughput and latency of an artifact, alone, beside other servers and behind Triton."""
