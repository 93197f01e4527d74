# One image for every service; docker-compose.yml says which one a container runs.
# Plain instructions only, so that any engine of the last years builds it.

FROM python:3.11-slim-bookworm AS wheel
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY services services
RUN pip wheel --no-cache-dir --disable-pip-version-check --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm

# Spark runs on Java; Python services do not need it, but one image is one thing to test.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*

# The locked dependencies, in a layer that a change of the code leaves alone.
COPY requirements.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement /tmp/requirements.txt \
 && rm /tmp/requirements.txt

COPY --from=wheel /wheels /tmp/wheels
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps /tmp/wheels/*.whl \
 && rm -r /tmp/wheels
COPY deploy/probe.py /opt/anabranch/probe.py

# Spark's classes as Java has loaded them once: a stage starts with half of the processor time (docs/speed.md). 177 MB, shared.
ENV ANABRANCH_CACHE=/opt/anabranch/cache
RUN anabranch classes --no-broker

# A number, so that an orchestrator can see that it is not root. The folder exists, so that a volume on it belongs to the user.
RUN useradd --uid 10001 --home-dir /var/lib/anabranch --create-home --shell /usr/sbin/nologin anabranch
USER 10001
WORKDIR /var/lib/anabranch
ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    ANABRANCH_STATE_DIR=/var/lib/anabranch \
    ANABRANCH_METRICS_PORT=9100
VOLUME /var/lib/anabranch
EXPOSE 9100
HEALTHCHECK --interval=5s --timeout=5s --start-period=90s --retries=3 CMD ["python", "-I", "-S", "/opt/anabranch/probe.py"]
CMD ["anabranch", "--help"]
