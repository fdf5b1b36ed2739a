#!/usr/bin/env bash
# Installs what is missing, builds, runs all tests: the house rules, the unit tests under sanitizers, everything in release.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh

# shellcheck disable=SC2154,SC2086
install_packages $build_packages $fetch_packages $test_packages
python3 scripts/check.py
if command -v shellcheck >/dev/null; then shellcheck -x tools/*.sh scripts/*.sh tests/tools/*.sh tests/backends/*.sh tests/cuda/*.sh .ci/run; fi

# Without the network the tests that need a real model are skipped.
tools/fetch_model.sh smollm2 >/dev/null || echo "the tests with a real model are skipped" >&2

# Left out are tests of scripts, with which the build has nothing to do, and those with a real model, which take long under the sanitizers. So
# is the package's: its strangers are built without them, which an instrumented library needs; the one that builds a tree of its own; and a
# driver's refusals, a hundred lives of a session each with shaders to compile.
build_into build-dev --preset dev
ctest --test-dir build-dev --output-on-failure --parallel "$(nproc)" --exclude-regex '^vulkan_faults|^tools_(check|fetch|dialect|gpu_check|tables|docs|real|eval|neon|package|adding)'
# nvcc, where it is there, compiles for one architecture (tests/cuda/all_architectures.sh has all); its warnings and register spills are errors.
build_into build --preset release -DKS_TESTS=ON -DKS_DEV=ON -DKS_CUDA_ARCHS=87-real
build/knapsack --version
ctest --test-dir build --output-on-failure --parallel "$(nproc)"
