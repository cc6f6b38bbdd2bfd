# All commands of the project. Each installs its requirements (scripts/setup.sh) and prints them.
#
#   make run ARGS="serve --model DIR"     arguments for the command

SETUP := scripts/setup.sh
CARGO := cargo
REPORT := target/report
# Commands select the whole workspace, so that each crate compiles with one set of features, once (docs/building.md).
BUILT := $${CARGO_TARGET_DIR:-target}/release

.DEFAULT_GOAL := help
.PHONY: fuzz help run run-cluster run-real test-real bench-real release test test-arm check-macos test-cluster test-cuda gpu-pack test-long test-hostile screenshots conformance echo-sample lint check-words bench bench-build loadtest knee overload telephone numbers soak realtime-vs-chat graph setup-test bench-call bench-cascade bench-cluster bench-engine bench-families bench-heard bench-interruptions bench-noise bench-scale bench-turns bench-weights bench-size weight-loss eval-model eval-weights sound-sample

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run:  ## Serve the demo model on http://127.0.0.1:8080
	@$(SETUP) build
	$(CARGO) build --release --workspace --bin repartee
	@exec $(BUILT)/repartee $(ARGS)

run-real:  ## Serve published models to talk to: Whisper base, Qwen2.5-Coder-1.5B and Kokoro (THINK=0.5b, smollm2, a folder, a GGUF file or a URL); fetches 1.3 GB the first time
	@$(SETUP) build real
	$(CARGO) build --release --workspace --bin repartee
	@exec scripts/run-real.sh $(BUILT)/repartee $(ARGS)

REAL_PYTHON := target/tools/python/bin/python

test-real:  ## Talk to the models of run-real and judge what is heard and said (20 minutes; ARGS="--only questions"); writes target/report/real.json
	@$(SETUP) build load tests speech real
	$(CARGO) build --release --workspace --bin repartee
	@scripts/run-real.sh fetch
	$(REAL_PYTHON) -B tests/real/run.py --binary $(BUILT)/repartee $(ARGS)

bench-real:  ## Measure the models of run-real beside faster-whisper, llama.cpp and onnxruntime on the same weights (idle machine); writes target/report/real_speed.json
	@$(SETUP) build load tests speech real llama_cpp
	$(CARGO) build --release --workspace --bin repartee --bench hearing --example text_model
	@for think in 0.5b 1.5b smollm2; do THINK=$$think scripts/run-real.sh fetch || exit 1; done
	$(REAL_PYTHON) -B tests/real/bench.py --binary $(BUILT)/repartee $(ARGS)

release:  ## Build what a release page holds: stripped binaries with link-time optimisation, in an archive, a Debian package and an OCI image, with SHA256SUMS and an SBOM: target/dist; prints the sizes
	@$(SETUP) build
	$(CARGO) build --profile dist -p repartee -p repartee-load --bin repartee --bin repartee-load $(if $(FEATURES),--features $(FEATURES))
	@scripts/release.py $${CARGO_TARGET_DIR:-target}/dist/repartee $${CARGO_TARGET_DIR:-target}/dist/repartee-load $${CARGO_TARGET_DIR:-target}/dist

test:  ## Run every test that a change must pass (at most 45 minutes on two cores, from a clean checkout)
	@CARGO=$(CARGO) scripts/test.sh

test-arm:  ## Cross-compile for 64-bit ARM and test in an emulator: kernels, unit tests, parity, a call (STEPS=kernels: fewer); installs and prints its tools
	@$(SETUP) build
	@CARGO=$(CARGO) scripts/test-arm.sh $(STEPS)

check-macos:  ## Check the types of everything but the load generator and the tests of behaviours for macOS on 64-bit ARM; needs no Mac, links nothing
	@$(SETUP) build
	@CARGO=$(CARGO) scripts/check-macos

test-cuda:  ## Test the CUDA kernels and models on a simulated device, without a GPU (docs/cuda.md); `make test` tests that device
	@$(SETUP) build cuda
	$(CARGO) test --release -p repartee-simcuda --no-fail-fast -- --include-ignored
	CARGO=$(CARGO) scripts/test-cuda.sh

gpu-pack:  ## Build and pack the binaries that scripts/on-gpu.sh runs on a machine with a GPU: target/on-gpu.tar.xz, under 60 MiB
	@$(SETUP) build cuda
	CARGO=$(CARGO) scripts/on-gpu.sh pack

run-cluster:  ## Serve the demo model on three nodes that share calls, with a server of NATS: http://127.0.0.1:8081 to 8083 (ARGS="--nodes 5"); compiles the gateway once more
	@$(SETUP) build nats
	$(CARGO) build --release --workspace --features repartee/cluster --bin repartee
	@exec scripts/run-cluster $(BUILT)/repartee $(ARGS)

test-cluster:  ## Test many nodes: the directory over a simulated network, servers of one process, and processes over NATS that are killed, stopped and drained; prints what was promised and seen (docs/cluster.md); compiles the gateway once more
	@$(SETUP) build load nats haproxy
	$(CARGO) test --release --workspace --features repartee/cluster --test directory --test cluster
	$(CARGO) test --release --workspace --features repartee/cluster --test cluster_processes --no-run
	timeout --foreground 600 $(CARGO) test --release --workspace --features repartee/cluster --test cluster_processes -- --nocapture --test-threads=1

test-phone:  ## Test telephone calls over SIP, also with sipp, baresip and Kamailio, which it unpacks from Debian's packages (docs/telephone.md)
	@$(SETUP) build load tests phones
	$(CARGO) test --release --workspace --test agent
	$(CARGO) test --release --workspace --test realtime sip::

test-long:  ## Run all tests, including the long ones and `make test-cuda`; writes target/report/test-long.txt
	@$(SETUP) build load tests phones prometheus recipe cuda fuzz thinkers nats haproxy
	@CARGO=$(CARGO) scripts/dated-report.sh $(REPORT)/test-long.txt scripts/test-long.sh

test-hostile:  ## Ask questions over websocket and WebRTC while each attack of a table runs, 13 minutes (ARGS="--only long-prompts"); `make test` runs the quick half; writes target/report/hostile.json
	@$(SETUP) build load
	$(CARGO) build --release --workspace --bin repartee-load
	$(BUILT)/repartee-load hostile --report $(REPORT) $(ARGS)

fuzz:  ## Run the fuzz targets (TARGETS="sdp rtp"; all of them) in libFuzzer, each for FUZZ_SECONDS (60); `make test` runs their seeds
	@$(SETUP) build fuzz
	CARGO=$(CARGO) scripts/fuzz.sh $(or $(FUZZ_SECONDS),60) $(TARGETS)

screenshots:  ## Take the screenshots of docs/page.md again, in Chromium with the demo model
	@$(SETUP) build load tests
	$(CARGO) test --release --workspace --test browser -- --ignored --exact browser::pictures_of_the_pages

conformance:  ## Run only the stock clients, one line each; `make test` runs all but GStreamer too
	@$(SETUP) build load tests
	$(CARGO) test --release --workspace --test clients conformance:: -- --test-threads=1 --include-ignored

lint:  ## Check format, clippy, documentation, Python, JavaScript, shell, deploy/, links, wording, and dependencies against deny.toml and advisories
	@$(SETUP) build load lint
	target/tools/python/bin/python -B -m unittest discover --start-directory tests/scripts
	scripts/check-deps
	scripts/check-advisories
	scripts/lint-python
	scripts/lint-shell
	scripts/lint-deploy
	scripts/lint-links
	@$(MAKE) --no-print-directory check-words
	scripts/lint-js
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --workspace --no-deps
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --release --workspace --no-deps --document-private-items

check-words:  ## Names of declared items, doc comments and test names against the lists of tests/wording; files over 1 MiB; circles of files; copied functions
	@$(SETUP) build
	$(CARGO) build --release --workspace --bin repartee-wording
	@$(BUILT)/repartee-wording

bench: bench-engine bench-heard bench-interruptions bench-turns bench-families  ## Run the main benchmarks, also against the references; writes target/report/{engine,heard,interruptions,turns,families,first_path}.json
	@$(SETUP) build load tests reference
	REPARTEE_REFERENCE_PYTHON=$(CURDIR)/target/tools/reference/bin/python \
	  $(CARGO) bench --workspace --bench first_path

bench-build:  ## Measure builds from nothing, RUNS (3) times, beside those of revision BEFORE if one is given; writes target/report/build.json
	@$(SETUP) build load
	scripts/bench-build --runs $(or $(RUNS),3) $(if $(BEFORE),--before $(BEFORE)) $(ARGS)

bench-call:  ## Measure the parts of a WebRTC call, for a packet or a frame, beside aiortc's, a whole call, and the efforts of the Opus encoder; writes target/report/call.json
	@$(SETUP) build load clients quality
	$(LOAD) peer $(ARGS)
	REPARTEE_CLIENT_PYTHON=$(CURDIR)/target/tools/clients/bin/python \
	  REPARTEE_QUALITY_PYTHON=$(CURDIR)/target/tools/quality/bin/python \
	  $(CARGO) bench --workspace --bench call

bench-cascade:  ## Measure the cascade's own time from the end of a turn to the first frame, beside its voice alone; writes target/report/cascade.json
	@$(SETUP) build load
	$(CARGO) bench --workspace --bench cascade

bench-cluster:  ## Measure the directory of many nodes: a choice among 200, a beat, a key; writes target/report/cluster.json. Then forwards between two processes; compiles the gateway once more
	@$(SETUP) build load nats
	$(CARGO) bench --workspace --bench cluster
	$(CARGO) test --release --workspace --features repartee/cluster --test cluster_processes load:: -- --nocapture --test-threads=1

bench-engine:  ## Measure the engine's modes against each other and the physical floor; writes target/report/engine.json
	@$(SETUP) build load
	$(CARGO) bench --workspace --bench engine

bench-families:  ## Measure the other families beside their references, small and in published dimensions (ARGS="tts-0.6b": only the named ones); writes target/report/families.json
	@$(SETUP) build load reference reference_tts
	REPARTEE_REFERENCE_PYTHON=$(CURDIR)/target/tools/reference/bin/python \
	  REPARTEE_TTS_PYTHON=$(CURDIR)/target/tools/qwen-tts/bin/python \
	  $(CARGO) bench --workspace --bench families -- $(ARGS)

bench-scale:  ## Measure 64 sessions of the engine on one to all threads of the machine, and the share that they do not share; writes target/report/scale.json
	@$(SETUP) build
	$(CARGO) bench --workspace --bench engine -- scale

bench-weights:  ## Measure products of published dimensions with weights of each format against the bandwidth of memory, candle and llama.cpp; writes target/report/weights.json
	@$(SETUP) build llama_cpp
	$(CARGO) bench --profile bench-peers --workspace --bench weights

PUBLISHED := models/dimensions/qwen3-omni-30b-a3b
PEER_LAYERS := 8

bench-size:  ## Measure a turn of the published dimensions of Qwen3-Omni-30B-A3B with random int4 weights (19 GiB; ARGS="--layers N" takes less), then peers (PEER_LAYERS=8); writes target/report/size.json
	@$(SETUP) build load peers
	$(CARGO) build --release --workspace --bin repartee
	$${CARGO_TARGET_DIR:-target}/release/repartee bench size --synthetic-weights $(PUBLISHED) \
	  --set engine.weights=int4 --set engine.session_tokens=1024 $(ARGS)
	REPARTEE_REFERENCE_PYTHON=$(CURDIR)/target/tools/reference/bin/python \
	  REPARTEE_OPENVINO_PYTHON=$(CURDIR)/target/tools/openvino/bin/python \
	  $(CARGO) bench --workspace --bench first_path -- answers
	python3 tests/peers/size.py $${CARGO_TARGET_DIR:-target}/release/repartee $(PUBLISHED) $(REPORT)/size.json \
	  --layers $(PEER_LAYERS) --answers $(REPORT)/answers.json

weight-loss:  ## Measure the demo model with int8, int4 and mixed weights: error of tensors, loss, answers; writes target/report/weight_loss.json
	@$(SETUP) build load
	$(CARGO) bench --workspace --bench weight_loss

bench-heard:  ## Measure the kept transcript of interrupted answers against a recogniser; writes target/report/heard.json
	@$(SETUP) build load recogniser
	$(CARGO) bench --workspace --bench heard

bench-interruptions:  ## Measure false and missed interruptions with echoes, voices and backchannels; writes target/report/interruptions.json
	@$(SETUP) build load
	$(CARGO) bench --workspace --bench interruptions

bench-noise:  ## Measure answers, turns and clean voices with noise reduction on frozen scenes of noise and of soft callers; writes target/report/noise_reduction.json
	@$(SETUP) build load tests
	$(CARGO) bench --workspace --bench noise_reduction

bench-turns:  ## Measure false ends and delay of turns on the frozen turns, beside silences and peers, with SMART_TURN=1 our own use of smart-turn too; writes target/report/turns.json
	@$(SETUP) build load tests speech turns
	$(CARGO) bench --workspace --bench turns

eval-model:  ## Ask MODEL (models/demo) its held-out questions, at most CALLS of each kind, and judge the answers; writes target/report/model.json
	@$(SETUP) build recogniser speech
	$(CARGO) build --release --workspace --bin repartee
	PYTHONPATH=models/demo/recipe target/tools/python/bin/python -m demo_recipe.evaluate \
	  --gateway $${CARGO_TARGET_DIR:-target}/release/repartee --people target/tools/people \
	  $(if $(MODEL),--model $(MODEL)) $(if $(CALLS),--calls $(CALLS)) $(ARGS)

eval-weights: weight-loss  ## Run eval-model for bf16, int8, mixed and int4 weights, and write the losses into MODEL's card
	for weights in bf16 int8 mixed int4; do \
	  $(MAKE) eval-model ARGS="--set engine.weights=$$weights --report $(REPORT)/model-$$weights.json \
	    --answers $(REPORT)/model-$$weights.jsonl" || exit 1; done
	PYTHONPATH=models/demo/recipe target/tools/python/bin/python -m demo_recipe.evaluate.formats $(if $(MODEL),--model $(MODEL))

echo-sample:  ## Write 20 s of a microphone beside an echo and a caller who interrupts, before and after echo cancelling: docs/echo-before.opus, docs/echo-after.opus
	@$(SETUP) build
	$(CARGO) build --release --workspace --example echo_sample
	$(BUILT)/examples/echo_sample docs

sound-sample:  ## Record the demo model's answers to some questions over WebRTC as Opus packets: docs/sample.opus
	@$(SETUP) build tests
	$(CARGO) build --release --workspace --bin repartee
	PYTHONPATH=models/demo/recipe target/tools/clients/bin/python -m demo_recipe.evaluate.sample docs/sample.opus \
	  --gateway $${CARGO_TARGET_DIR:-target}/release/repartee $(ARGS)

LOAD = $(CARGO) build --release --workspace --bin repartee-load && $(BUILT)/repartee-load

loadtest:  ## Run synthetic callers against a server of today's code, or TARGET, in under five minutes; writes target/report/load.{json,html}
	@$(SETUP) build load
	$(LOAD) run $(if $(TARGET),--target $(TARGET)) $(ARGS)

knee:  ## Search the largest number of callers within the limits, with the demo model and a canned voice, and compare a call's cost with aiortc's; adds to target/report/load.json
	@$(SETUP) build load clients
	$(LOAD) knee --voice demo $(ARGS)
	$(LOAD) knee --voice canned $(ARGS)
	$(LOAD) peer

overload:  ## Let 80 and 160 callers come within 5 s (ARGS="--callers 200"), and judge the answers of those that the server takes; writes target/report/overload.json
	@$(SETUP) build load
	$(LOAD) overload $(ARGS)

telephone:  ## Compare the time to first packet over SIP with that over WebRTC, on one server in one run (ARGS="--rounds 8"); writes target/report/telephone.json
	@$(SETUP) build load
	$(LOAD) telephone $(ARGS)

numbers:  ## Write the reports of target/report into docs/numbers.md
	python3 scripts/numbers_page.py $(REPORT) docs/numbers.md

soak:  ## Run eight callers for MINUTES (60) and check that memory and delays stay constant; writes target/report/soak.{json,html}
	@$(SETUP) build load
	$(LOAD) soak $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

realtime-vs-chat:  ## Compare 20 s and 200 s of speech, streamed and in one upload; writes target/report/realtime_vs_chat.json
	@$(SETUP) build load
	$(LOAD) realtime-vs-chat $(ARGS)

graph:  ## Write the crate graph into ARCHITECTURE.md
	@$(SETUP) build load
	$(CARGO) build --release --workspace --bin crate_graph
	@$(BUILT)/crate_graph ARCHITECTURE.md

setup-test:  ## Install the requirements of the tests
	@$(SETUP) build load tests
