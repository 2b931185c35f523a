# The two commands of the README are `make demo` and `make test`; `make help` lists the rest.
SHELL := /bin/bash
WEFT := build/release/bin/weft
FUZZ_SECONDS ?= 10
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: help demo demo-run convergence run-accuracy tidy accuracy calibrate spread test test-asan test-tsan fuzz bench deps documents format check-format clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: deps  ## build weft, find a plan for a model on a cluster, and simulate one
	@cmake --preset release > build/release.log 2>&1 || { cat build/release.log; exit 1; }
	@cmake --build --preset release --target weft
	$(WEFT) plan --model llama3-70b --cluster dgx-h100:16 --global-batch 1024 --seq 8192 --tokens 1T
	$(WEFT) show strategy --model llama3-8b --cluster dgx-h100:2 --strategy tp=4,pp=2,dp=2,zero=1
	$(WEFT) simulate --model llama3-8b --cluster dgx-h100:2 --strategy tp=4,pp=2,dp=2,zero=1

DEMO_RUN = --model gpt2-124m:layers=4,hidden=256,heads=4,vocab=2048 --strategy tp=2 --ranks 2
demo-run: deps  ## build weft and its ranks, train small models for real, and show the prediction beside what was measured
	@cmake --preset release > build/release.log 2>&1 || { cat build/release.log; exit 1; }
	@cmake --build --preset release --target weft weft-rank
	$(WEFT) run --model gpt2-124m:layers=4,hidden=128,heads=4,vocab=1024 --strategy tp=2,dp=2,zero=1 --ranks 4 --steps 5 --check
	$(WEFT) profile measure $(DEMO_RUN) --db build/demo.db --cluster-out build/demo.yaml
	$(WEFT) run $(DEMO_RUN) --steps 20 --cluster build/demo.yaml --cost measured --db build/demo.db --trace build/demo.json

convergence: deps  ## train a small GPT under several strategies: one loss curve, to rounding
	@cmake --preset release > build/release.log 2>&1 || { cat build/release.log; exit 1; }
	@cmake --build --preset release --target weft weft-rank
	tools/convergence.py

RANKS ?= $(shell nproc)
MEASURED ?= ../shared/measured
# Tables of MEASURED that no constant is fitted to.
HELD_OUT ?= $(notdir $(wildcard $(MEASURED)/runs_2.csv))
run-accuracy: deps  ## profile this machine's cores, run plans on RANKS of them, and write how well they were predicted
	@cmake --preset release > build/release.log 2>&1 || { cat build/release.log; exit 1; }
	@cmake --build --preset release --target weft weft-rank
	tools/run_accuracy.py --ranks $(RANKS) --out build/run_accuracy.md

accuracy: deps  ## compare predictions with the measured runs of MEASURED (default ../shared/measured)
	@ls $(MEASURED)/*.csv > /dev/null 2>&1 || { echo "no measured runs: $(MEASURED)/*.csv is not there; name the folder, make accuracy MEASURED=DIR"; exit 1; }
	@cmake --preset release > build/release.log 2>&1 || { cat build/release.log; exit 1; }
	@cmake --build --preset release --target weft cost_check
	$(WEFT) validate --rules tools/published_runs.yaml $(MEASURED)/*.csv $(wildcard $(addprefix $(MEASURED)/aux/,nccl_allreduce*.csv comm_curves*.csv moe_layer*.csv)) --leave-out $(if $(HELD_OUT),--held-out $(HELD_OUT)) --timing
	MEASURED=$(MEASURED) build/release/bin/cost_check

calibrate: deps  ## fit the built-in constants of devices, links and stacks anew to the runs of MEASURED
	@ls $(MEASURED)/*.csv > /dev/null 2>&1 || { echo "no measured runs: $(MEASURED)/*.csv is not there; name the folder, make calibrate MEASURED=DIR"; exit 1; }
	@cmake --preset release > build/release.log 2>&1 || { cat build/release.log; exit 1; }
	@cmake --build --preset release --target weft
	$(WEFT) calibrate --rules tools/published_runs.yaml $(MEASURED)/*.csv $(if $(HELD_OUT),--held-out $(HELD_OUT)) --from-priors --out presets/cost/fitted.yaml

spread: deps  ## write anew how far predictions are off, each publication of MEASURED left out: the intervals of forecasts
	@ls $(MEASURED)/*.csv > /dev/null 2>&1 || { echo "no measured runs: $(MEASURED)/*.csv is not there; name the folder, make spread MEASURED=DIR"; exit 1; }
	@cmake --preset release > build/release.log 2>&1 || { cat build/release.log; exit 1; }
	@cmake --build --preset release --target weft
	$(WEFT) validate --rules tools/published_runs.yaml $(MEASURED)/*.csv $(if $(HELD_OUT),--held-out $(HELD_OUT)) --spread presets/cost/spread.yaml --top 0

test: deps  ## build and run every test
	@cmake --preset dev > build/dev.log 2>&1 || { cat build/dev.log; exit 1; }
	@cmake --build --preset dev
	ctest --preset dev

# Of ctest: these tests and no others.
only = -R '^($(subst $() ,|,$(strip $(1))))$$'

test-asan: deps  ## the same tests, or TESTS="a_test b_test", under the address and undefined-behaviour sanitizers
	@cmake --preset asan > build/asan.log 2>&1 || { cat build/asan.log; exit 1; }
	@cmake --build --preset asan $(if $(TESTS),--target $(TESTS))
	ctest --preset asan $(if $(TESTS),$(call only,$(TESTS)))

PARALLEL_TESTS := validate_test hybrid_test soap_test search_test calibrate_test
test-tsan: deps  ## the tests of what runs in parallel, under the thread sanitizer
	@cmake --preset tsan > build/tsan.log 2>&1 || { cat build/tsan.log; exit 1; }
	@cmake --build --preset tsan --target $(PARALLEL_TESTS)
	ctest --preset tsan $(call only,$(PARALLEL_TESTS))

fuzz: deps  ## run each parser's fuzzer for FUZZ_SECONDS (default 10)
	@cmake --preset asan > build/asan.log 2>&1 || { cat build/asan.log; exit 1; }
	@cmake --build --preset asan --target $(notdir $(basename $(wildcard fuzz/*_fuzz.cpp)))
	@fuzz/run build/asan $(FUZZ_SECONDS)

bench: deps  ## build and run the benchmarks
	@cmake --preset release > build/release.log 2>&1 || { cat build/release.log; exit 1; }
	@cmake --build --preset release
	@for b in build/release/bin/*_bench; do echo "== $$b"; $$b || exit 1; done

# Installs only what dpkg does not already have, so that a second run costs milliseconds.
deps:
	@mkdir -p build
	@missing=$$(grep -vE '^#|^$$' packages.txt | while read -r p; do \
	  dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'install ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  echo "installing:" $$missing; \
	  $(SUDO) apt-get update -qq && \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing > build/apt.log 2>&1 \
	    || { tail -n 20 build/apt.log; exit 1; }; \
	fi

documents: deps  ## write what the commands print into README.md and docs/
	@cmake --preset release > build/release.log 2>&1 || { cat build/release.log; exit 1; }
	@cmake --build --preset release --target weft
	tools/documents.py

format: deps  ## rewrite the sources with clang-format
	@git ls-files '*.h' '*.cpp' | xargs clang-format-14 -i

TIDY_FOLDERS ?= base layout program plan problem search
tidy: deps  ## clang-tidy (.clang-tidy) over the sources of TIDY_FOLDERS
	@cmake -S . -B build/tidy -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_C_COMPILER=clang-14 -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DWEFT_PRECOMPILE=OFF > build/tidy.log 2>&1 || { cat build/tidy.log; exit 1; }
	@ls $(patsubst %,src/%/*.cpp,$(TIDY_FOLDERS)) | grep -v _test.cpp | xargs -P 2 -n 4 clang-tidy-14 -p build/tidy --quiet 2> /dev/null

check-format: deps  ## fail where clang-format would rewrite the sources
	@git ls-files '*.h' '*.cpp' | xargs clang-format-14 --dry-run -Werror

clean:  ## remove build/
	rm -rf build
