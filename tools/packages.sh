# shellcheck shell=bash disable=SC2034
# The packages of Debian and Ubuntu that building, testing and downloading models need, and
# functions that install and build. Sourced by quickstart.sh, test.sh, fuzz.sh and coverage.sh.

build_packages="g++ cmake ninja-build libutf8proc-dev nlohmann-json3-dev"
build_packages="$build_packages libvulkan-dev glslang-tools libmicrohttpd-dev"
fetch_packages="python3 python3-venv ca-certificates"
fuzz_packages="clang-14 libclang-rt-14-dev"
test_packages="doctest-dev python3 pkg-config mesa-vulkan-drivers"
test_packages="$test_packages g++-aarch64-linux-gnu qemu-user"

# Installs the given packages, except those that are installed.
install_packages() {
    local missing="" package sudo=""
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        echo "not Debian or Ubuntu: install these packages yourself if they are missing: $*" >&2
        return 0
    fi
    for package in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || sudo=sudo
    if [ -n "$sudo" ] && ! command -v sudo >/dev/null; then
        echo "packages are missing and there is no sudo; as root: apt-get install$missing" >&2
        return 1
    fi
    echo "installing:$missing" >&2
    $sudo apt-get update -qq >/dev/null || return
    # shellcheck disable=SC2086
    $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# build_into FOLDER [CMAKE ARGUMENTS]: configures and builds; a new folder uses Ninja. $build_only
# lists the targets to build; default: all.
build_into() {
    local folder=$1 generator=()
    shift
    [ -f "$folder/CMakeCache.txt" ] || generator=(-G Ninja)
    # shellcheck disable=SC2086
    cmake -S . -B "$folder" "${generator[@]}" "$@" >&2 &&
        cmake --build "$folder" --parallel ${build_only:+--target $build_only} >&2
}
