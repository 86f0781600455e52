#!/usr/bin/env bash
# Starts Ray on plain hosts by ssh, the first of which is the head, or stops it there.
#
#   cluster/start_ray.sh gpu1 gpu2 gpu3
#   cluster/start_ray.sh --stop gpu1 gpu2 gpu3
#
# Each host needs the repository with its environment at the same place. All get the token of this
# machine (~/.ray/auth_token), which is made if need be.
#
# Variables: REPOSITORY (default: this one's path), VENV (default: REPOSITORY/.venv),
#            RAY_PORT (default: 6379), SSH (default: ssh)
# Status:    2 for wrong arguments, 1 where a host failed; each such host is named.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly REPOSITORY=${REPOSITORY:-$HERE}
readonly VENV=${VENV:-$REPOSITORY/.venv}
readonly PORT=${RAY_PORT:-6379}
readonly TOKEN=$HOME/.ray/auth_token
read -r -a SSH <<<"${SSH:-ssh}"

main() {
    local verb=start
    if [[ ${1:-} == --stop ]]; then
        verb=stop
        shift
    fi
    if (($# == 0)) || [[ $1 == -* ]]; then
        echo "usage: cluster/start_ray.sh [--stop] HEAD [HOST ...]" >&2
        exit 2
    fi
    "$verb"_all "$@"
}

start_all() {
    local head=$1 address
    shift
    [[ -s $TOKEN ]] || RAY_AUTH_MODE=token "$VENV/bin/ray" get-auth-token --generate >/dev/null
    send_token "$head"
    on "$head" "ray start --head --port=$PORT"
    address=$(on "$head" "hostname --ip-address")
    address=${address%% *}:$PORT
    for host in "$@"; do
        send_token "$host"
        on "$host" "ray start --address=$address"
    done
    echo "Ray runs at $address. To use it:"
    echo "  export RAY_AUTH_MODE=token RAY_ADDRESS=$address"
    echo "  python launch/doctor.py --gpu"
}

stop_all() {
    local status=0
    for host in "$@"; do
        on "$host" "ray stop" || status=1
    done
    return "$status"
}

send_token() {
    "${SSH[@]}" "$1" 'umask 077 && mkdir -p ~/.ray && cat >~/.ray/auth_token' <"$TOKEN" ||
        fail "$1"
}

# A command in the environment of the repository on a host.
on() {
    local quoted
    # shellcheck disable=SC2016 # the host's own PATH
    printf -v quoted 'cd %q && PATH=%q/bin:$PATH RAY_AUTH_MODE=token %s' "$REPOSITORY" "$VENV" "$2"
    "${SSH[@]}" "$1" "$quoted" </dev/null || fail "$1"
}

fail() {
    echo "start_ray.sh: $1 failed (see above); does \`ssh $1\` work, and is the environment" \
        "at $VENV there?" >&2
    return 1
}

main "$@"
