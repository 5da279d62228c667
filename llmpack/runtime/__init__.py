"""Slots, scheduler, sampler, detokenizer and engine. Imports neither torch nor the compiler."""
