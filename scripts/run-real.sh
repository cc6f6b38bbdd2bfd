#!/usr/bin/env bash
# Serves published models that a person can talk to: a recogniser, a language model and a voice. Fetches them the first time.
#
# Usage: run-real.sh BINARY [ARGUMENT...]    Arguments go to `repartee serve`. Needs the part real of setup.sh.
#        run-real.sh fetch                   only fetches the models
#   THINK     the language model: 1.5b (default), 0.5b or smollm2, or a folder, a GGUF file, or the URL of a chat-completions server
#   HEAR, SPEAK  a folder in place of Whisper base, of Kokoro-82M

set -euo pipefail
cd "$(dirname "$0")/.."

binary=$1
shift
export PIP=${PIP:-$PWD/target/tools/real/bin/pip} PYTHON=${PYTHON:-$PWD/target/tools/real/bin/python}
PATH=$PWD/target/tools/python/bin:$PATH

fetched() { "$PYTHON" scripts/real-models.py "$1"; }

case ${THINK:-1.5b} in
  1.5b) think=$(fetched qwen2.5-coder-1.5b) ;;
  0.5b) think=$(fetched qwen2.5-coder-0.5b) ;;
  smollm2) think=$(fetched smollm2-135m) ;;
  *) think=$THINK ;;
esac
hear=${HEAR:-$(fetched whisper-base)}
speak=${SPEAK:-$(fetched kokoro-82m)}

[ "$binary" != fetch ] || exit 0

# Eight bits for what is published in more: the voice's convolutions are the most work of an answer.
# Few callers fit a laptop, and an answer is short.
exec "$binary" serve --hear "$hear" --think "$think" --speak "$speak" --set engine.weights=int8 \
  --set engine.sessions=4 --set engine.session_tokens=4096 "$@"
