#!/usr/bin/env bash
# Stands for a python3 that has vllm, or has not: prints the arguments of what it is to run, one a line.
if [ "$1" = -c ]; then exit "${LACKS_VLLM:-0}"; fi
printf '%s\n' "$@"
