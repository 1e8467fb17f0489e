# Everyday commands. `just` alone lists them.

# Where the shared oracles lie when they are not beside the project.
export STRATA_SHARED := env("STRATA_SHARED", justfile_directory() / "../shared")

_list:
    @just --list

# Check the toolchain and fetch the dependencies
setup:
    rustup show active-toolchain
    rustup component add rustfmt clippy
    cc --version | head -n 1
    cargo fetch --locked

# Build the optimised `strata` binary
build:
    cargo build --release --locked

# Run every test
test:
    cargo test --workspace --locked

# Run every test with cargo-nextest, if it is installed
nextest:
    cargo nextest run --workspace --locked

# Check formatting, lints and docs; warnings are errors
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Measure: memory, kernels, decode, prefill, or ab to compare two builds or settings
bench WHAT="decode" *ARGS:
    cargo run --release --locked -- bench {{WHAT}} {{ARGS}}

# Serve a model over HTTP, with pages for people
serve *ARGS:
    cargo run --release --locked -- serve {{ARGS}}

# The official Python clients against the real server and a scripted one (Python fetches them)
clients:
    cargo build --locked -p strata -p strata-server --bins --examples
    python3 -m venv target/clients
    target/clients/bin/pip install -q -r engine/server/tests/sdk/requirements.txt
    target/clients/bin/pytest -q -p no:cacheprovider engine/server/tests/sdk

# Compile the CUDA kernels to PTX; --check compares with what is committed (Python fetches the compiler, no GPU is needed)
ptx *ARGS:
    python3 -m venv target/ptx
    target/ptx/bin/pip install -q --no-deps -r engine/cuda/scripts/requirements.txt
    target/ptx/bin/python engine/cuda/scripts/ptx.py {{ARGS}}

# Test the kernels and the host's part of the GPU where there is none: a driver that runs kernels on the CPU (needs g++, x86-64).
# Seed 0 keeps the order of the calls, others shuffle what no event orders
emulated SEED="0" *ARGS="--workspace --test bits --test cuda --test cuda_alone":
    engine/cuda/emulator/build.sh "$PWD/target/emulator"
    EMULATED_GPU_SEED={{SEED}} LD_LIBRARY_PATH="$PWD/target/emulator" cargo test --locked {{ARGS}}

# 32 clients at once, for so many seconds, at a scripted server and at the real one
load SECONDS="60":
    cargo build --release --locked -p strata-server --examples
    STRATA_LOAD_SECONDS={{SECONDS}} cargo test --release --locked -p strata-server --test load thirty_two -- --nocapture
    STRATA_LOAD_SECONDS={{SECONDS}} cargo test --release --locked -p strata --test cli thirty_two -- --nocapture

# Talk in the terminal
chat *ARGS:
    cargo run --release --locked -- run {{ARGS}}

# The property that drafts change nothing, with many more cases than `just test` has
nightly CASES="50000":
    STRATA_CASES={{CASES}} cargo test --release -p strata-runtime --locked --test speculation

# Run an experiment by name or number, or `all`; those with a run.py measure real programs (PYTHON names its interpreter)
[positional-arguments]
run-experiment NAME *ARGS:
    @if [ -f "experiments/$1/run.py" ]; then name="$1"; shift; exec "${PYTHON:-python3}" "experiments/$name/run.py" "$@"; fi; \
    exec cargo run --profile lab --locked -p strata-report -- run "$@"

# Make summaries, figures and results/INDEX.md again from the rows that are kept; --check compares instead
report *ARGS:
    cargo run --profile lab --locked -p strata-report -- report {{ARGS}}

# The laboratory: list, run, merge, report and more (`just lab --help`)
lab *ARGS:
    cargo run --profile lab --locked -p strata-report -- {{ARGS}}

# Fuzz the GGUF reader (needs cargo-fuzz and a nightly toolchain)
fuzz SECONDS="600":
    cd engine/gguf/fuzz && cargo +nightly fuzz run open -- -max_total_time={{SECONDS}} -rss_limit_mb=1024
