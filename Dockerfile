# The service. `docker build .` makes the image to run; `--target demo` adds the records of the demo.
# A publisher names the base by digest: --build-arg BASE=python:3.11-slim@sha256:DIGEST
ARG BASE=python:3.11-slim

# -- the wheel, and the tool that lists what is installed; nothing of this stage is in the image
FROM ${BASE} AS build
WORKDIR /src
COPY deploy/image/build-requirements.txt deploy/image/
RUN python -m venv /build \
 && /build/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r deploy/image/build-requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY service service
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

# -- the wheel, what it needs by hash, the list of it (SBOM), and compiled kernels
FROM build AS installed
# Kernels use only instructions that every processor of the architecture has. The same variable is set in the service.
ENV NUMBA_CPU_NAME=generic
COPY deploy/image/requirements.txt deploy/image/
RUN python -m venv --without-pip /opt/shoal \
 && /build/bin/pip --python /opt/shoal/bin/python install --no-cache-dir --no-compile --only-binary :all: \
    --require-hashes -r deploy/image/requirements.txt \
 && /build/bin/pip --python /opt/shoal/bin/python install --no-cache-dir --no-compile --no-index --no-deps /wheels/*.whl \
 && /build/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
    --output-file /opt/shoal/sbom.cdx.json /opt/shoal/bin/python
# A kernel is valid for the modification time of its module. Layers keep whole seconds, and builders may set later times
# to that of the commit, so all times are set before kernels are compiled. Byte code is not compared with times.
RUN find /opt/shoal -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} + \
 && /opt/shoal/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/shoal/lib \
 && /opt/shoal/bin/shoal warm

# -- the demo's records, one JSON object a line
FROM ${BASE} AS records
WORKDIR /src
COPY deploy/demo/fetch.py deploy/demo/
RUN python deploy/demo/fetch.py > /records.jsonl

# -- what runs: no pip, no compiler, no root
FROM ${BASE} AS service
ARG BASE
# A publisher gives both: --build-arg VERSION=0.3.0 --build-arg REVISION=COMMIT
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="shoal" \
      org.opencontainers.image.description="Turns a Kafka topic of personal records into a k-anonymous topic, live and exactly once" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.authors="The Shoal authors" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
RUN python -m pip uninstall --quiet --yes pip setuptools wheel \
 && rm -rf /usr/local/lib/python3*/ensurepip /usr/local/bin/pip* \
 && useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin shoal \
 && install --directory --owner shoal --group shoal /var/cache/shoal
COPY --from=installed /opt/shoal /opt/shoal
# Kernels are beside the package and are only read. A kernel that is not there is compiled, and kept in
# XDG_CACHE_HOME if a volume is mounted there.
ENV PATH=/opt/shoal/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CPU_NAME=generic \
    XDG_CACHE_HOME=/var/cache/shoal \
    SHOAL_HTTP=0.0.0.0:9464 \
    SHOAL_LOG=json
USER 10001:10001
EXPOSE 9464
STOPSIGNAL SIGTERM
# It asks the address in SHOAL_HTTP. A worker with --http or a certificate needs `shoal health --http` with its address.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 CMD ["shoal", "health"]
# A core dump of this process holds personal records: none is ever written.
ENTRYPOINT ["/bin/sh", "-c", "ulimit -c 0 && exec shoal \"$@\"", "shoal"]
CMD ["run", "/etc/shoal/policy.yaml"]

# -- the same with the demo's records and the program that sends them
FROM service AS demo
COPY --from=records /records.jsonl /demo/records.jsonl
COPY deploy/demo/produce.py /demo/produce.py
HEALTHCHECK NONE
ENTRYPOINT ["python", "/demo/produce.py", "/demo/records.jsonl"]
CMD []

# what `docker build .` makes
FROM service
