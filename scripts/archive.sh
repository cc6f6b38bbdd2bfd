#!/usr/bin/env bash
# Packs a release: the binary, its settings, its documentation, the licences of what it links (THIRD-PARTY), the systemd unit and the files
# for Prometheus and Grafana.
#
# Usage: archive.sh BINARY FOLDER [LOAD]    Writes FOLDER/repartee-VERSION-linux-ARCH.tar.gz and its checksum, and prints the archive's path.
# LOAD is the binary of the load generator, which goes beside the server's.
# The same files give the same bytes.

set -euo pipefail
cd "$(dirname "$0")/.."
binary=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")

version=$("$binary" --version | cut -d ' ' -f 2)
name=repartee-$version-linux-$(uname -m)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/$name

install -D -m 755 "$binary" "$root/repartee"
[ $# -lt 3 ] || install -D -m 755 "$3" "$root/repartee-load"
for file in README.md LICENSE CHANGELOG.md SECURITY.md repartee.example.toml docs/*.md docs/*.png docs/nginx.conf docs/Caddyfile \
  deploy/repartee.service deploy/prometheus.yaml deploy/grafana/* web/grafana/*; do
  install -D -m 644 "$file" "$root/$file"
done
scripts/third-party >"$root/THIRD-PARTY"
chmod 644 "$root/THIRD-PARTY"

tar --create --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" \
  --directory "$stage" "$name" | gzip --no-name >"$out/$name.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
printf '%s\n' "$out/$name.tar.gz"
