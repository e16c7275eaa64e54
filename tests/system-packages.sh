#!/usr/bin/env bash
# Every system package that the tests use beyond Python itself. Tests that need one skip, with the reason, where it is missing.
set -euo pipefail
packages=(make)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
  echo "not installed (needs apt-get and root): ${missing[*]}"
  exit 0
fi
apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"
