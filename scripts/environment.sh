# Sourced by the other scripts: gives them a virtual environment with this project in it.

# prepare_environment EXTRAS: makes .venv when it is missing and installs the project with EXTRAS.
# Sets PYTHON and puts the environment's commands first in PATH.
prepare_environment() {
  local extras=$1
  PYTHON=.venv/bin/python
  if [[ ! -x $PYTHON ]]; then
    "$(find_python)" -m venv .venv
  fi
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
  export PATH="$PWD/.venv/bin:$PATH"
}

# Prints the first interpreter that is new enough.
find_python() {
  local candidate
  for candidate in python3.11 python3.12 python3.13 python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "error: no Python 3.11 or newer in PATH" >&2
  return 1
}
