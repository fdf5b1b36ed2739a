#!/bin/sh
# Compiles the CUDA backend with nvcc for every architecture that the toolkit supports. Warnings and
# register spills are errors. Takes about ten minutes.
#     all_architectures.sh [BUILD_FOLDER]
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build-nvcc}
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DKS_DEV=ON -DKS_CUDA=ON -DKS_CUDA_ARCHS=all \
    -DKS_VULKAN=OFF -DKS_TESTS=OFF -DKS_SHARED=OFF
cmake --build "$build" --parallel "$(nproc)"
"$build/knapsack" --version
