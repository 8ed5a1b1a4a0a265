# The planner page (`recipe serve`), the reward service (`recipe reward serve`) and the evaluation board (`recipe board`);
# docs/serving.md tells how to run them.
#   docker build -t recipe .
#   docker build -t recipe:cuda --build-arg BASE=nvidia/cuda:12.8.1-base-ubuntu24.04 --build-arg TORCH_INDEX= .
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}

# PyTorch for processors; empty for PyPI's build, which brings CUDA's libraries.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=board,cpu,offline,report,serve,video,llm
ENV PATH=/opt/recipe/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PORT=8001

SHELL ["/bin/sh", "-eu", "-c"]
# An image without Python gets the one of its distribution, which must be 3.11 or newer.
# hadolint ignore=DL3008
RUN if ! command -v python3 >/dev/null || ! python3 -c 'import ensurepip' 2>/dev/null; then \
        apt-get update; \
        apt-get install --yes --no-install-recommends python3 python3-venv; \
        rm -rf /var/lib/apt/lists/*; \
    fi; \
    python3 -m venv /opt/recipe; \
    useradd --create-home --uid 10001 recipe

WORKDIR /src
COPY pyproject.toml constraints.txt README.md ./
COPY src src
COPY docs docs
COPY configs configs
RUN python -m pip install -c constraints.txt ${TORCH_INDEX:+--extra-index-url ${TORCH_INDEX}} ".[${EXTRAS}]"; \
    recipe --version

WORKDIR /data
RUN mkdir /cache; chown recipe:recipe /data /cache
ENV RECIPE_CACHE=/cache NUMBA_CACHE_DIR=/cache/numba
USER 10001
EXPOSE 8001
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"PORT\"]}/healthz', timeout=4)"]
ENTRYPOINT ["recipe"]
CMD ["serve", "--host", "0.0.0.0"]
