#!/usr/bin/env bash
# Put Nsight Systems' command line on a Debian 12 (x86-64) machine, for contributors and CI:
#
#     sudo tools/install-nsys.sh [PREFIX]      # /opt/nsys by default, where traceviz looks for it
#
# It unpacks the nsys that Debian's next release ships (2023.4.4) under PREFIX, from the mirror this machine already
# uses, and leaves the machine's own package sources alone. That nsys exports reports of its version and older ones;
# of a newer report it prints an error, may exit with 0, and leaves half an export: good enough to test both ways.
# Run again, it only says which version is there.
set -euo pipefail

prefix=${1:-/opt/nsys}
nsys=$prefix/bin/nsys
suite=trixie
packages=(nsight-systems nsight-systems-target)
# what the unpacked programs load and a bare machine lacks
libraries=(libssh-4 libpfm4 libglib2.0-0 libegl1 libopengl0 libgl1 libxkbcommon0 libdbus-1-3 libfontconfig1 libnss3)

if [[ -x $nsys ]] && "$nsys" --version; then
  exit 0
fi
[[ $(id -u) == 0 ]] || { echo "$0: run it as root: it installs libraries" >&2; exit 1; }
[[ $(dpkg --print-architecture) == amd64 ]] || { echo "$0: only x86-64 machines are supported" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/parts" "$work/debs" "$prefix/bin"

# the machine's first Debian source, for the other suite and section
modern=/etc/apt/sources.list.d/debian.sources classic=/etc/apt/sources.list
if [[ -r $modern ]]; then
  source=$work/other.sources
  awk -v RS= 'NR == 1' "$modern" |
    sed -e "s/^Suites:.*/Suites: $suite/" -e 's/^Components:.*/Components: non-free/' >"$source"
else
  source=$work/other.list
  awk -v suite="$suite" '$1 == "deb" { sub(/\[[^]]*\] */, ""); print "deb", $2, suite, "non-free"; exit }' "$classic" >"$source"
fi
apart=(-o "Dir::Etc::SourceList=$source" -o "Dir::Etc::SourceParts=$work/parts" -o "Dir::State::Lists=$work/lists")
apt-get -qq "${apart[@]}" update
(cd "$work/debs" && apt-get -qq "${apart[@]}" -o APT::Sandbox::User=root download "${packages[@]}")
for package in "$work"/debs/*.deb; do
  dpkg-deb --extract "$package" "$prefix"
done

apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "${libraries[@]}" >/dev/null

# the packages expect to lie in /usr: lead them to each other, and to this machine's libssh
root=$prefix/usr/lib/x86_64-linux-gnu
ln -sf /usr/lib/x86_64-linux-gnu/libssh.so.4 "$root/libssh.so.4"
ln -sfn ../../nsight-systems/host-linux-x64 "$root/nsight-systems/host-linux-x64"
cat >"$nsys" <<EOF
#!/bin/sh
exec "$root/nsight-systems/target-linux-x64/nsys" "\$@"
EOF
chmod +x "$nsys"
"$nsys" --version
