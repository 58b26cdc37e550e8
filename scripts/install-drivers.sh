#!/usr/bin/env bash
# Makes sure that OpenCL and WebGPU devices can work here.
#
#   scripts/install-drivers.sh PYTHON
#
# PYTHON has the package with its extras `opencl` and `webgpu`. What the system lacks is
# installed by apt-get, as root or by a sudo that asks for no password:
#   binutils                         PoCL links its kernels with `ld`
#   mesa-vulkan-drivers libvulkan1   a Vulkan device on machines without a card
# On systems without apt-get the script says what is missing and ends with 1.
set -euo pipefail
python="$1"

has() {
    "$python" -m tenferro_ad doctor --require "$1" >/dev/null 2>&1
}

packages=()
if [ "$(uname -s)" = Linux ] && ! command -v ld >/dev/null; then
    packages+=(binutils)
fi
if ! has webgpu; then
    packages+=(mesa-vulkan-drivers libvulkan1)
fi
if [ "${#packages[@]}" -gt 0 ]; then
    install=(apt-get -o DPkg::Lock::Timeout=300)
    refuse() {
        echo "The lanes of devices need ${packages[*]} (Debian's names of packages), and $1." >&2
        echo "Install them, then run this again." >&2
        exit 1
    }
    command -v apt-get >/dev/null || refuse "there is no apt-get here"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || refuse "this is not root and there is no sudo"
        sudo -n true 2>/dev/null || refuse "sudo asks for a password"
        install=(sudo -n "${install[@]}")
    fi
    echo "Installing ${packages[*]}"
    "${install[@]}" -qq update || refuse "\`${install[*]} update\` failed"
    "${install[@]}" -qq install -y --no-install-recommends "${packages[@]}" >/dev/null ||
        refuse "\`${install[*]} install\` failed"
fi
if ! has opencl,webgpu; then
    "$python" -m tenferro_ad doctor --require opencl,webgpu >&2
fi
