#!/usr/bin/env bash
# From a bare Debian or Ubuntu to an answer: installs packages, builds, downloads a small model,
# prints the plan and asks one question in 256 MiB.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh

# shellcheck disable=SC2154,SC2086
install_packages $build_packages $fetch_packages
# Without a GPU the CUDA backend is not built: nvcc would compile it for all architectures, which
# takes many minutes.
cuda=(-DKS_CUDA=OFF)
for node in /dev/nvidiactl /dev/nvgpu /dev/nvhost-gpu /dev/dxg; do
    [ ! -e "$node" ] || cuda=(-DKS_CUDA=AUTO)
done
build_into build --preset release -DKS_TESTS=OFF "${cuda[@]}"
if [ "${cuda[0]}" = -DKS_CUDA=OFF ]; then
    echo "CUDA backend: not built, because this machine has no NVIDIA GPU"
    echo "    (for all architectures: cmake -S . -B build -DKS_CUDA=ON && cmake --build build)"
else
    echo "CUDA backend: $(sed -n 's/^KS_CUDA_SUMMARY:INTERNAL=//p' build/CMakeCache.txt)"
fi
model=$(tools/fetch_model.sh smollm2)

question="Why is the sky blue? Answer in one sentence."
echo
build/knapsack plan -m "$model" --memory 256MiB
printf '\n> %s\n' "$question"
echo "$question" | build/knapsack chat -m "$model" --memory 256MiB --temp 0 -n 120
printf '\nContinue with: build/knapsack chat -m %s --memory 256MiB\n' "${model#"$PWD"/}"
