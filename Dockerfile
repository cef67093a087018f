# One image for `outlast api`, `outlast worker` and `outlast migrate`. The servers that `outlast dev` starts are not in it.
FROM python:3.11-slim AS build
WORKDIR /build
# Bytecode is compiled here: the sandbox loads the flow's modules for each workflow that enters a worker's cache, and the user below
# may not write beside them.
COPY requirements/installer.lock requirements/runtime.lock requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/installer.lock \
 && uv venv --seed /opt/outlast \
 && uv pip install --python /opt/outlast --compile-bytecode --no-cache --require-hashes -r requirements/runtime.lock
COPY pyproject.toml README.md settings.py worker.py ./
COPY workflows workflows
COPY activities activities
COPY api api
COPY cli cli
COPY profiles profiles
RUN uv pip install --python /opt/outlast --compile-bytecode --no-cache --no-deps --no-build-isolation .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --create-home --home-dir /srv/outlast outlast
COPY --from=build /opt/outlast /opt/outlast
ENV PATH=/opt/outlast/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Both or neither: the version of this image's workers (docs/operations.md, Versioned workers).
ARG DEPLOYMENT=""
ARG BUILD_ID=""
ENV OUTLAST_WORKER__DEPLOYMENT=$DEPLOYMENT OUTLAST_WORKER__BUILD_ID=$BUILD_ID
USER outlast
WORKDIR /srv/outlast
ENTRYPOINT ["outlast"]
CMD ["--help"]
