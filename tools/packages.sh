# shellcheck shell=bash disable=SC2034
# What building, testing and fetching models needs beside a bare Debian or Ubuntu, and how it is installed and built.
# Sourced by quickstart.sh, test.sh, fuzz.sh, coverage.sh and fetch_model.sh.

build_packages="g++ cmake ninja-build libutf8proc-dev nlohmann-json3-dev libvulkan-dev glslang-tools"
fetch_packages="python3 python3-venv ca-certificates"
fuzz_packages="clang-14 libclang-rt-14-dev"
test_packages="doctest-dev python3 pkg-config mesa-vulkan-drivers g++-aarch64-linux-gnu qemu-user"

# Installs those of the packages given that are missing.
install_packages() {
    local missing="" package sudo=""
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        echo "not a Debian or Ubuntu: what Debian calls '$*' is taken to be there" >&2
        return 0
    fi
    for package in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || sudo=sudo
    if [ -n "$sudo" ] && ! command -v sudo >/dev/null; then
        echo "missing packages:$missing; there is no sudo, so install them as root: apt-get install$missing" >&2
        return 1
    fi
    echo "installing:$missing" >&2
    # shellcheck disable=SC2086
    $sudo apt-get update -qq >/dev/null && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# build_into FOLDER [CMAKE ARGUMENTS]: configures with Ninja where the folder is new, and builds, of targets only those that $build_only names.
build_into() {
    local folder=$1 generator=()
    shift
    [ -f "$folder/CMakeCache.txt" ] || generator=(-G Ninja)
    # shellcheck disable=SC2086
    cmake -S . -B "$folder" "${generator[@]}" "$@" >&2 && cmake --build "$folder" --parallel ${build_only:+--target $build_only} >&2
}
