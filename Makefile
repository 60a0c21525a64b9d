# A few words for the whole of the work. Each one first brings the checkout up to date with
# tools/bootstrap, which takes no time when there is nothing to do.

.DEFAULT_GOAL := help
.PHONY: help help-all demo test test-lab ci test-all check touched bench chaos fuzz fail-open mutants rights audit conformance docs image release clean ready ready-docs ready-kernel
export PATH := $(PATH):/usr/sbin:/sbin
# Without compiled files each worker would compile all tests, and each program that they start.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := .venv/bin/python -m pytest
# What needs no lab, on every core. A file's tests stay with one worker: they share fixtures, and some
# a name on this machine. Folders of tests that passed go at once. All of tests/lab needs one.
UNIT := $(PYTEST) -n auto --dist loadfile -o tmp_path_retention_policy=failed --ignore=tests/lab
QUICK := $(UNIT) -q --hypothesis-profile=quick -m "not slow and not lab"
# The folders of all tests with the mark `lab` (tests/conftest.py): to read the others takes seconds.
# A process for each kind of lab: machines, the bare VM, native nodes, and but for `make test` emulated
# machines; whichever is done first goes on with native files (tests/groups.py).
LABS := $(PYTEST) tests/lab tests/vm --dist loadscope -v
CORE := $(LABS) -n 3
LAB := $(LABS) -n 4
# Machines are user-mode kernels, where one has been compiled (tests/lab/machines/conftest.py).
test-lab ci: export KUBE_RDMA_MACHINES := user-mode
# All that tests need and the demo does not: built before the first lab boots, not beside it.
PARTS := .venv/bin/python -m tests.kit.parts
# $(call both,FIRST,SECOND): the second run comes also if the first failed, so that one word tells all;
# at its end, where the time of both went (tests/times.py).
both = export KUBE_RDMA_TIMES=$$(mktemp); failed=0; $1 || failed=1; $2 || failed=1; \
	rm $$KUBE_RDMA_TIMES; exit $$failed

# `##` marks the words that most people need, `#:` all others.
help:
	@awk -F ':.* ## ' '/^[a-z-]+:.* ## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile
	@echo "make help-all    list all words"

help-all:
	@awk -F ':.* #[#:] ' '/^[a-z-]+:.* #[#:] / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: ready ## boot the lab, install kube-rdma, run the SCC example, end with a table; leaves the lab up
	@.venv/bin/kube-rdma lab demo

# The labs come after all else, for their machines want the cores for themselves; the demo's goes before.
test: ready ## eight minutes: every test without a lab, then those with one that tell whether a checkout works
	@.venv/bin/kube-rdma lab down --if-only-demo
	@$(call both,$(UNIT) -m "not slow and not lab",$(CORE) -m "not slow and core")

test-lab: ready-kernel #: all other tests that need a lab, but the slow ones
	@$(PARTS)
	@$(LAB) -m "not slow and lab and not core"

ci: ready-kernel #: what `make test` and `make test-lab` run, in one run of labs
	@$(call both,$(UNIT) -m "not slow and not lab",$(PARTS) && $(LAB) -m "not slow and lab")

test-all: ready-docs ready-kernel #: the slow tests too, then the same in a new Debian that holds only git, make and python3
	@$(call both,$(UNIT) --hypothesis-profile=thorough -m "not lab",$(PARTS) --slow && $(LAB) -m lab)
	@tools/fresh-root --full

check: ready ## style, types, import contracts, unit tests: 196 s of CPU, three minutes on two cores
	@$(QUICK)

touched: ready ## style, types and tests of the files that differ from HEAD, or from ARGS=main: at most 60 s of CPU
	@.venv/bin/python -m tests.touched $(ARGS)

bench: ready #: measure; ARGS="lab devices --json" chooses what and how
	@.venv/bin/python -m bench $(ARGS)

chaos: ready #: faults by a seed on a lab under load, and an audit of it; ARGS="--seed 7 --count 10", docs/faults.md
	@.venv/bin/python -m chaos $(ARGS)

fuzz: ready #: feed random bytes to what reads foreign ones; ARGS="--target NAME --inputs N", docs/faults.md
	@.venv/bin/python -m tests.fuzz $(ARGS)

fail-open: ready #: break the agent at each step of an attach, count pods without their NIC; docs/faults.md
	@.venv/bin/python -m bench.fail_open $(ARGS)

mutants: ready #: do the unit tests notice faults? ARGS="--seed 1 --count 20" puts that many in, one at a time
	@.venv/bin/python -m kube_rdma_tools.mutants $(ARGS)

rights: ready #: compare what roles grant with what the lab's tests used; ARGS=--record keeps the evidence
	@.venv/bin/python -m kube_rdma_tools.rights build/rights $(ARGS)

audit: ready #: look for advisories against locked versions; ARGS="--index ADDRESS" asks a package index
	@.venv/bin/python -m kube_rdma_tools.advisories $(ARGS) locks/*.txt src/kube_rdma_lab/modules/*/go.mod

conformance: ready #: evidence of AI conformance items 10 and 41, of the cluster of KUBECONFIG; docs/hardware.md
	@.venv/bin/python -m kube_rdma_tools.conformance dist/conformance $(ARGS)

docs: ready-docs ## build the site of all pages into dist/docs: a folder for this version beside those that lie there
	@.venv/bin/python -m kube_rdma_tools.site dist/docs $(ARGS)

release: ready #: write all files of a release into dist/VERSION; VERSION=0.2.0 builds that one, docs/release.md
	@.venv/bin/python -m kube_rdma_tools.release dist $(if $(VERSION),--of $(VERSION)) $(ARGS)

image: ready #: build the node image into dist/kube-rdma.tar; ARGS="--platform linux/arm64" for Arm
	@.venv/bin/python -m kube_rdma_lab.build image dist/kube-rdma.tar $(ARGS)

clean: #: remove what was built inside this checkout, and say what lies outside
	@rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "The lab's parts stay in $${KUBE_RDMA_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/kube-rdma}; remove that folder to build them anew."

ready:
	@tools/bootstrap

ready-docs:
	@tools/bootstrap docs

ready-kernel:
	@tools/bootstrap kernel
