#!/usr/bin/env bash
# Every system package that the tests use beyond Python itself. Tests that need one skip, with the reason, where it is missing.
set -euo pipefail
packages=(make adb openssh-server openssh-client gcc libc6-dev cmake valgrind gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing+=("$package")
done
if [ "${#missing[@]}" -ne 0 ]; then
  if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" ||
      echo "not all of these could be installed: ${missing[*]}"
  else
    echo "not installed (needs apt-get and root): ${missing[*]}"
  fi
fi

# ARM64 code runs under qemu-user 10 or later; Debian 12 has 7.2, which crashes in ONNX Runtime. Its package from Debian 13
# is unpacked beside the other caches and nothing is installed.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/compressor/qemu"
version="$(qemu-aarch64 --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p' | head -n 1 || true)"
if [ "${version:-0}" -lt 10 ] && [ ! -x "$cache/usr/bin/qemu-aarch64" ] && command -v dpkg-deb >/dev/null &&
  [ "$(dpkg --print-architecture)" = amd64 ]; then
  lists="$(mktemp -d)"
  trap 'rm -rf "$lists"' EXIT
  mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main" \
    >"$lists/sources"
  options=(-qq -o "Dir::Etc::SourceList=$lists/sources" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists/cache")
  if apt-get "${options[@]}" update && (cd "$lists" && apt-get "${options[@]}" download qemu-user) 2>/dev/null; then
    mkdir -p "$cache"
    dpkg-deb --fsys-tarfile "$lists"/qemu-user_*.deb | tar -x -C "$cache" ./usr/bin/qemu-aarch64
  else
    echo "qemu-user 10 could not be had: tests of ARM64 code skip"
  fi
fi
