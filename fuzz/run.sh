#!/usr/bin/env bash
# Fuzzes every decoder: fuzz/run.sh SECONDS [TARGET...]
#
# Builds the program, writes the seeds, and runs each target for SECONDS, as many side by side as there are cores, at most
# FUZZ_JOBS. Prints a table, and fails with the paths of the inputs to blame if anything was found. After Ctrl-C what was
# found so far is in fuzz/artifacts and fuzz/corpus. See fuzz/README.md.
set -euo pipefail
cd "$(dirname "$0")"

all=(proof proof_mutated certificate rotation slip id key last verdict reply config safetensors tokenizer model inspect)

usage() {
    echo "usage: fuzz/run.sh SECONDS [TARGET...]; targets: ${all[*]}" >&2
    exit 2
}

[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || usage
seconds=$1
shift
targets=("$@")
[ $# -gt 0 ] || targets=("${all[@]}")
for target in "${targets[@]}"; do
    [[ " ${all[*]} " == *" $target "* ]] || usage
done

# The most that a run may take in all, in seconds and in MiB of the whole process. What one input may take on the heap is a
# limit of its own (src/lib.rs), so this is only reached by what is never given back.
timeout=25
rss=3072
# Some targets read short programs or texts, others whole files.
longest() {
    case $1 in
        proof_mutated) echo 512 ;;
        verdict) echo 256 ;;
        slip | config) echo 4096 ;;
        reply | tokenizer | safetensors | id | last) echo 16384 ;;
        *) echo 524288 ;;
    esac
}
dictionary() {
    case $1 in
        reply | config | safetensors | tokenizer) echo json.dict ;;
        *) echo binary.dict ;;
    esac
}

# What libFuzzer needs to see of a program: which branches an input takes. They are flags of any compiler, unlike those of
# sanitizers, which only a nightly one has. To be told of every comparison too would take two thirds of the time of a proof,
# whose comparisons are those of field arithmetic; the dictionaries have what inputs are compared with.
instrument=(
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
)
if ! command -v "${CXX:-c++}" >/dev/null; then
    echo "fuzzing needs a C++ compiler: there is no ${CXX:-c++}" >&2
    exit 1
fi
host=$(rustc -vV | sed -n 's/^host: //p')
# With a target named, the flags are not those of build scripts and macros.
RUSTFLAGS="${instrument[*]}" cargo build --locked --profile fuzz --package zkmoe-fuzz --features libfuzzer --target "$host"
program=$(realpath "${CARGO_TARGET_DIR:-../target}")/$host/fuzz/fuzz

# Threads of the prover would only wait for each other: inputs are small, and targets run side by side.
export RAYON_NUM_THREADS=1

work=$(mktemp -d)
pids=()
stop() {
    [ "${#pids[@]}" -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The proofs that inputs are about are made here once. They are those of this build, so the next run makes its own.
export FUZZ_FIXTURES=$work
mkdir -p artifacts corpus logs
if ! FUZZ_SEEDS=corpus "$program" >logs/seeds 2>&1; then
    cat logs/seeds >&2
    exit 1
fi
touch "$work/start"

# Old findings come first, as ordinary inputs: a fault that is back is found at once.
fuzz() {
    local target=$1 known=()
    mkdir -p "artifacts/$target"
    [ ! -d "regressions/$target" ] || known=("regressions/$target")
    FUZZ_TARGET=$target exec "$program" "corpus/$target" "${known[@]}" \
        -max_total_time="$seconds" -timeout="$timeout" -rss_limit_mb="$rss" -max_len="$(longest "$target")" \
        -dict="$(dictionary "$target")" -artifact_prefix="artifacts/$target/" -print_final_stats=1 \
        >"logs/$target" 2>&1
}

jobs=${FUZZ_JOBS:-$(nproc)}
running=0
for target in "${targets[@]}"; do
    if [ "$running" -ge "$jobs" ]; then
        wait -n || true
        running=$((running - 1))
    fi
    fuzz "$target" &
    pids+=($!)
    running=$((running + 1))
done
wait
pids=()

status=0
printf '%-14s %12s %8s %9s %9s %7s %9s  %s\n' target executions exec/s coverage features corpus 'peak MiB' findings
for target in "${targets[@]}"; do
    log=logs/$target
    stat() { sed -n "s/^stat::$1: *//p" "$log"; }
    last=$(grep -o 'cov: [0-9]* ft: [0-9]* corp: [0-9]*' "$log" | tail -1 || true)
    read -r cov ft corp < <(awk '{ print $2, $4, $6 }' <<<"$last")
    mapfile -t found < <(find "artifacts/$target" -type f -newer "$work/start")
    printf '%-14s %12s %8s %9s %9s %7s %9s  %s\n' "$target" "$(stat number_of_executed_units)" \
        "$(stat average_exec_per_sec)" "${cov:-?}" "${ft:-?}" "${corp:-?}" "$(stat peak_rss_mb)" "${#found[@]}"
    # A run that ends otherwise than by its time has a reason, even if it left no input.
    if [ "${#found[@]}" -gt 0 ] || ! grep -q '^Done ' "$log"; then
        status=1
        printf '  %s\n' "${found[@]}" "see fuzz/$log"
    fi
done
[ "$status" -eq 0 ] || echo 'something was found' >&2
exit "$status"
