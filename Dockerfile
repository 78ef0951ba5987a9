# The service. `docker build .` makes the image to run; `--target demo` adds the records of the demo.

# -- the wheel, built once
FROM python:3.11-slim AS wheel
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY service service
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# -- the wheel and what it needs, at the versions of constraints.txt
FROM python:3.11-slim AS installed
COPY constraints.txt /src/
COPY --from=wheel /wheels /wheels
RUN python -m venv /opt/shoal \
 && /opt/shoal/bin/pip install --no-cache-dir --constraint /src/constraints.txt /wheels/*.whl \
 && /opt/shoal/bin/pip uninstall --yes pip setuptools

# -- the demo's records, one JSON object a line
FROM python:3.11-slim AS records
WORKDIR /src
COPY deploy/demo/fetch.py deploy/demo/
RUN python deploy/demo/fetch.py > /records.jsonl

# -- what runs: no pip, no compiler, no root
FROM python:3.11-slim AS service
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin shoal \
 && install --directory --owner shoal --group shoal /var/cache/shoal
COPY --from=installed /opt/shoal /opt/shoal
ENV PATH=/opt/shoal/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/var/cache/shoal
# Kernels are compiled at the first start and kept in NUMBA_CACHE_DIR: mount a volume there. They are valid for the type
# of processor that compiled them only, so the image has none: `RUN shoal warm` here would be of use only to containers
# on the processor of the builder.
USER 10001
EXPOSE 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9464/livez', timeout=2)"]
# A core dump of this process holds personal records: none is ever written.
ENTRYPOINT ["/bin/sh", "-c", "ulimit -c 0 && exec shoal \"$@\"", "shoal"]
CMD ["run", "/etc/shoal/policy.yaml", "--http", "0.0.0.0:9464", "--log", "json"]

# -- the same with the demo's records and the program that sends them
FROM service AS demo
COPY --from=records /records.jsonl /demo/records.jsonl
COPY deploy/demo/produce.py /demo/produce.py
HEALTHCHECK NONE
ENTRYPOINT ["python", "/demo/produce.py", "/demo/records.jsonl"]
CMD []

# what `docker build .` makes
FROM service
