#!/usr/bin/env bash
# Installs what builds and runs programs for 64-bit ARM Linux on an x86-64 machine, and prints it (docs/building.md).
#
# Usage: arm-tools.sh           installs what is missing
#        arm-tools.sh --ready   true if nothing is missing; installs and prints nothing
#
# The compiler's standard library is a component of the installed toolchain (`rustup target add`). GCC, its C library and the emulator are
# unpacked from Debian's packages, which apt verifies, into target/tools/arm; nothing else of the system changes. On another system the
# compiler and the emulator may be installed by its own means: `aarch64-linux-gnu-gcc` and `qemu-aarch64-static`, or `qemu-aarch64`.

set -euo pipefail
cd "$(dirname "$0")/.."

TARGET=aarch64-unknown-linux-gnu
HOME_OF_TOOLS=target/tools/arm

say() { printf 'arm-tools: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

has_std() { [ -d "$(rustc --print sysroot)/lib/rustlib/$TARGET/lib" ]; }
has_gcc() { command -v aarch64-linux-gnu-g++ || [ -x "$HOME_OF_TOOLS/usr/bin/aarch64-linux-gnu-g++" ]; }
has_qemu() { command -v qemu-aarch64-static || command -v qemu-aarch64 || [ -x "$HOME_OF_TOOLS/usr/bin/qemu-aarch64-static" ]; }

if [ "${1:-}" = --ready ]; then
  { command -v rustc && has_std && has_gcc && has_qemu; } >/dev/null 2>&1
  exit
fi

[ "$(uname -sm)" = "Linux x86_64" ] || die "this is for Linux on x86-64. On an ARM machine \`make test\` tests its own kernels."
command -v rustc >/dev/null || die "there is no Rust: install rustup, then try again"

if ! has_std; then
  command -v rustup >/dev/null ||
    die "$(rustc --version) has no standard library for $TARGET, and there is no rustup to fetch it. Install rustup's toolchain."
  say "fetching the standard library for $TARGET (28 MB, 150 MB unpacked) into the toolchain; rustup target remove $TARGET removes it"
  rustup target add "$TARGET" >&2 || die "that failed: without it nothing can be built for ARM"
fi

# Packages of Debian that are missing, with what they need that this system has not.
wanted=()
has_gcc >/dev/null || wanted+=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu)
has_qemu >/dev/null || wanted+=(qemu-user-static)
if [ ${#wanted[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || die "missing: ${wanted[*]} (names of Debian packages). Install them with your system's own tool."
  say "unpacking ${wanted[*]} into $HOME_OF_TOOLS (113 MB to download)"
  rm -rf "$HOME_OF_TOOLS"
  mkdir -p "$HOME_OF_TOOLS/debs/partial"
  options=(-y -qq --no-install-recommends --download-only -o Debug::NoLocking=1 -o "Dir::Cache::archives=$PWD/$HOME_OF_TOOLS/debs")
  apt-get install "${options[@]}" "${wanted[@]}" >/dev/null 2>&1 || {
    # Old package lists name packages that are gone.
    if [ "$(id -u)" -eq 0 ]; then apt-get update -qq >&2; else say "if that fails, type as root: apt-get update"; fi
    apt-get install "${options[@]}" "${wanted[@]}" >&2 || die "the download failed"
  }
  for package in "$HOME_OF_TOOLS"/debs/*.deb; do
    dpkg -x "$package" "$HOME_OF_TOOLS"
    (cd "$HOME_OF_TOOLS/debs" && sha256sum "${package##*/}") >>"$HOME_OF_TOOLS/packages.txt"
  done
  # Most of the size: other architectures, sanitizers, documentation.
  find "$HOME_OF_TOOLS/usr/bin" -name 'qemu-*' ! -name qemu-aarch64-static -delete
  rm -rf "${HOME_OF_TOOLS:?}/debs" "${HOME_OF_TOOLS:?}/usr/share" "$HOME_OF_TOOLS"/usr/bin/*lto-dump* \
    "$HOME_OF_TOOLS"/usr/aarch64-linux-gnu/lib/lib{a,l,t,hwa,ub}san.*
fi

scripts/on-arm aarch64-linux-gnu-gcc --version | head -1 >&2
scripts/on-arm qemu-aarch64 --version | head -1 >&2
[ ! -d "$HOME_OF_TOOLS" ] || say "$(du -sh "$HOME_OF_TOOLS" | cut -f1) in $HOME_OF_TOOLS; versions and hashes are in its packages.txt"
say "$(rustc --version), with $(du -sh "$(rustc --print sysroot)/lib/rustlib/$TARGET" | cut -f1) of standard library for $TARGET"
