# shellcheck shell=bash
# What the scripts agree on, to be sourced: where tests keep what is fetched or built once, and how our own crates are
# compiled. It must not install or start anything.

# The rule of the testkit, too.
if [[ -n ${POSTRIDER_TEST_CACHE:-} ]]; then
    cache=$POSTRIDER_TEST_CACHE
elif ((EUID == 0)); then
    cache=/var/cache/postrider
else
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/postrider
fi

# Our own crates are compiled by clippy's driver, which is what `cargo clippy` does without making code: so the lints and
# the tests share one build of every library. Each word of the arguments ends with clippy's own separator.
lint_while_building() {
    RUSTC_WORKSPACE_WRAPPER=$(rustup which clippy-driver 2>/dev/null || command -v clippy-driver) || {
        printf 'error: clippy is missing: rustup component add clippy\n' >&2
        return 1
    }
    export RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
}
