#!/usr/bin/env bash
# Installs packages, builds and runs all tests: the checks of the sources, the tests with
# sanitizers, all tests in a release build.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh

# shellcheck disable=SC2154,SC2086
install_packages $build_packages $fetch_packages $test_packages
python3 scripts/check.py
if command -v shellcheck >/dev/null; then
    shellcheck -x tools/*.sh scripts/*.sh tests/{tools,backends,cuda}/*.sh .ci/run
fi

# Without a network the tests that need a real model are skipped.
tools/fetch_model.sh smollm2 >/dev/null || echo "skipping the tests with a real model" >&2

# The sanitizer build skips tests of scripts, which do not depend on the build, and slow tests:
# those with a real model, tools_adding, which builds another tree, tools_chat_tools, and
# vulkan_faults, which compiles shaders for a hundred sessions. It skips tools_package too: its
# programs are built without the sanitizers that the library then needs.
skipped='^vulkan_faults|^tools_chat_tools'
skipped="$skipped|^tools_(check|fetch|dialect|gpu_check|tables|docs|real|eval|neon|package|adding)"
skipped="$skipped|^tools_scale"
# AVX-VNNI differs from AVX2 by one instruction.
build_into build-dev --preset dev -DKS_COMPILES_avxvnni=
# Starting a program with sanitizers takes longer than reading a damaged model, so one reads many.
export KS_TEST_REPLAY=$PWD/build-dev/fuzz_gguf
ctest --test-dir build-dev --output-on-failure --parallel "$(nproc)" --exclude-regex "$skipped"
unset KS_TEST_REPLAY
# nvcc, if installed, compiles for one architecture (tests/cuda/all_architectures.sh tests all). Its
# warnings and register spills are errors.
build_into build --preset release -DKS_TESTS=ON -DKS_DEV=ON -DKS_CUDA_ARCHS=87-real
build/knapsack --version
ctest --test-dir build --output-on-failure --parallel "$(nproc)"
