"""Reading the facts of compiled artifacts: llmpack's own and, from their JSON alone, other compilers'."""
