#!/usr/bin/env bash
# Stands for tritonserver: prints its arguments, one a line.
printf '%s\n' "$@"
