# Everything runs in .venv, which the first target that needs it makes. On the machine: make and python3 (3.10 or newer).
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
export PYTHONDONTWRITEBYTECODE =  # tests start many processes, and each would compile the package again

.PHONY: demo test learn soak mutants lint types stub docs box2d clean

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

test: lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

learn: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow --timeout 3600

soak: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m soak --timeout 3600

mutants: $(INSTALLED)
	$(BIN)/python tests/mutants/run.py

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy --num-workers 2

docs: $(INSTALLED)  # always rebuilt; a warning fails it
	$(BIN)/zensical build --clean --strict

stub: $(INSTALLED)
	$(BIN)/python -m rl_training.api.stub

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info < (3, 10) and sys.exit("Python 3.10 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install torch==2.13.0
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev,data,mujoco,atari,plot,tune,report,log,wandb,mlflow,video,export,ray,slurm,docs]'
	$(BIN)/python -m pip install -c constraints.txt --no-deps MinAtar  # what it draws with is not needed
	$(BIN)/python -m pip install -c constraints.txt 'gymnasium[box2d]' || $(MAKE) box2d || echo "Box2D is not installed; its tests are skipped"
	touch $(INSTALLED)

box2d:  # builds it where there is no wheel; needs a C++ compiler
	$(BIN)/python -m pip install swig setuptools wheel
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --no-build-isolation --no-deps box2d-py==2.3.8

clean:
	rm -rf .venv .cache build dist site .hypothesis .mypy_cache .pytest_cache .ruff_cache
