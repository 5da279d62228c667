#!/usr/bin/env bash
# The curl command of the tutorial on Llama 2, with the batch dimension that its batching config asks for.
#   curl.sh URL MODEL
set -euo pipefail

curl --silent --location --request POST "$1/v2/models/$2/infer" \
    --header 'Content-Type: application/json' \
    --data-raw '{"inputs": [{"name": "prompt", "shape": [1, 1], "datatype": "BYTES", "data": ["Hello"]}]}'
