"""``anabranch compose``: a Docker Compose file for a pipeline.

The file has a broker, Redis, the dashboard, and one container for each process of the pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline

_ABOUT: Final = """\
# The pipeline @PIPELINE@ as it would be deployed on one machine: one container per service,
# any of which may be killed at any time.
# Written by `anabranch compose`.
#
#   docker compose up --detach --wait@TO_BUILD@      bring it up
#   docker compose logs --follow SERVICE           follow the log of a service
#   docker compose down                            stop it; add --volumes to forget everything
#
# From the machine itself the broker is localhost:9092 (ANABRANCH_KAFKA_PORT).
# ANABRANCH_PIPELINE_DIR is the folder of the pipeline file.
# The nodes of a participant share one volume, in which each replica has a folder: a replica that
# has lost its checkpoint copies that of a peer from there.

"""
_HEAD: Final = """\
name: @NAME@

x-service: &service
  image: @IMAGE@
@BUILD@  init: true                        # a real PID 1: passes signals on, reaps Spark's children
  # An unexpected error ends the process; it goes on where it stopped, also after a reboot.
  restart: unless-stopped
  stop_grace_period: 15s            # a service needs at most 10
  read_only: true
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  # Small: a stage's temporary files, and the files that Java unpacks, are in its volume.
  tmpfs: ["/tmp:mode=1777,size=64m"]
  networks: [stream]
  depends_on:
    topics: {condition: service_completed_successfully}

x-environment: &environment
  ANABRANCH_PIPELINE: /pipeline/@FILE@
  ANABRANCH_KAFKA: kafka:29092
  ANABRANCH_METRICS_HOST: 0.0.0.0   # for a Prometheus in the network `stream`; not published
  ANABRANCH_METRICS_PORT: "9100"

services:
  kafka:
    image: apache/kafka:4.3.1
    stop_grace_period: 30s
    restart: unless-stopped
    environment:
      KAFKA_NODE_ID: 1
      KAFKA_PROCESS_ROLES: broker,controller
      KAFKA_CONTROLLER_QUORUM_VOTERS: 1@kafka:29093
      KAFKA_CONTROLLER_LISTENER_NAMES: CONTROLLER
      KAFKA_LISTENERS: INTERNAL://:29092,CONTROLLER://:29093,HOST://:9092
      KAFKA_ADVERTISED_LISTENERS: INTERNAL://kafka:29092,\
HOST://localhost:${ANABRANCH_KAFKA_PORT:-9092}
      KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,HOST:PLAINTEXT
      KAFKA_INTER_BROKER_LISTENER_NAME: INTERNAL
      KAFKA_LOG_DIRS: /var/lib/kafka/data
      # One broker; three, with min.isr 2, where data must survive a disk.
      KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: 1
      # The usual 50 cost a broker this small memory and time to start.
      KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS: 5
      KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS: 5
      KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: 1
      KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: 1
      KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS: 0
      KAFKA_AUTO_CREATE_TOPICS_ENABLE: "false"  # a topic made by accident has the wrong settings
      KAFKA_HEAP_OPTS: -Xms256m -Xmx512m
    ports: ["127.0.0.1:${ANABRANCH_KAFKA_PORT:-9092}:9092"]
    volumes: ["kafka-data:/var/lib/kafka/data"]
    networks: [stream]
    mem_limit: 1g                   # twice the heap: it also maps indexes and buffers sockets
    healthcheck:                    # the port opens with the broker; a tool would be a second JVM
      test: [CMD, bash, -c, "exec 3<>/dev/tcp/127.0.0.1/29092"]
      interval: 2s
      timeout: 3s
      retries: 15
      start_period: 30s

  redis:
    image: redis:8.10.2-alpine
    # An index that can be rebuilt: nothing is on disk, and only the consistency manager uses it.
    command: [redis-server, --save, "", --appendonly, "no", --maxmemory, 96mb,
              --maxmemory-policy, allkeys-lru]
    init: true
    restart: unless-stopped
    read_only: true
    tmpfs: ["/data"]
    networks: [stream]
    mem_limit: 160m
    healthcheck:
      test: [CMD, redis-cli, ping]
      interval: 2s
      timeout: 3s
      retries: 10

"""
_TOPICS: Final = """\
  # Creates the topics that are missing, and ends. The services depend on its end.
  topics:
    <<: *service
    restart: "no"
    command: [anabranch, topics, --file, /pipeline/@FILE@, --create, --kafka, "kafka:29092"]
    environment: *environment
    volumes: ["${ANABRANCH_PIPELINE_DIR:-@FOLDER@}:/pipeline:ro"]
    mem_limit: 256m
    healthcheck: {disable: true}
    depends_on:
      kafka: {condition: service_healthy}

"""
_SERVICE: Final = """\
  @CONTAINER@:
    <<: *service
    command: [python, -m, anabranch.@SERVICE@]
    environment: {<<: *environment, ANABRANCH_NAME: @NAME@@MORE@}
    volumes: ["${ANABRANCH_PIPELINE_DIR:-@FOLDER@}:/pipeline:ro", "@VOLUME@:/var/lib/anabranch"]
    mem_limit: @MEMORY@
@AFTER@
"""
_DASHBOARD: Final = """\
  # The page of `anabranch ui`: http://localhost:9180/ (ANABRANCH_UI_PORT). Its token is
  # ANABRANCH_UI_TOKEN, else a random one, which `docker compose logs dashboard` shows. Nothing
  # depends on it.
  dashboard:
    <<: *service
    command:
      - anabranch
      - ui
      - --host=0.0.0.0
      - --port=9180
      - --file=/pipeline/@FILE@
      - --kafka=kafka:29092
@PROCESSES@    environment:
      <<: *environment
      ANABRANCH_METRICS_PORT: "9180"
      ANABRANCH_UI_TOKEN: "${ANABRANCH_UI_TOKEN:-}"
    volumes: ["${ANABRANCH_PIPELINE_DIR:-@FOLDER@}:/pipeline:ro"]
    ports: ["127.0.0.1:${ANABRANCH_UI_PORT:-9180}:9180"]
    mem_limit: 256m

"""
_MANAGER_AFTER: Final = """\
    depends_on:                     # without Redis it runs, too: it writes the index when it can
      topics: {condition: service_completed_successfully}
      redis: {condition: service_healthy}
"""
_MORE: Final = {
    "consistency_manager": ', ANABRANCH_REDIS: "redis://redis:6379/0"',
    # A path below /pipeline. Without a key the broker only reads.
    "contract_broker": ', ANABRANCH_SIGNING_KEY_FILE: "${ANABRANCH_SIGNING_KEY_FILE:-}"',
    "agent": ', ANABRANCH_SIGNING_KEY_FILE: "${ANABRANCH_SIGNING_KEY_FILE:-}"',
}
_MEMORY: Final = {
    "ingestion": "512m",
    "processing": "3g",
    "delivery": "512m",
    "consistency_manager": "384m",
    "contract_broker": "256m",
    "agent": "256m",
}


def text(
    pipeline: Pipeline,
    *,
    folder: str,
    image: str,
    build: str | None = None,
    name: str | None = None,
) -> str:
    """Return the text of the Compose file.

    Args:
        pipeline: The pipeline to deploy.
        folder: Folder of the pipeline file, relative to the Compose file.
        image: Name of the image of all services.
        build: Folder in which Compose builds the image; None: the image must exist.
        name: Name of the Compose project; None: that of the pipeline.
    """
    services, volumes = [], ["kafka-data"]
    for service, process in pipeline.own_processes():
        container, volume = _names(service, process)
        if volume not in volumes:
            volumes.append(volume)
        is_manager = service == "consistency_manager"
        services.append(
            _filled(
                _SERVICE,
                CONTAINER=container,
                SERVICE=service,
                NAME=process,
                MORE=_MORE.get(service, ""),
                FOLDER=folder,
                VOLUME=volume,
                MEMORY=_MEMORY[service],
                AFTER=_MANAGER_AFTER if is_manager else "",
            )
        )
    about = _filled(_ABOUT, PIPELINE=pipeline.name, TO_BUILD=" --build" if build else "")
    head = _filled(
        _HEAD,
        NAME=name or pipeline.name,
        IMAGE=image,
        BUILD=f"  build: {build}\n" if build else "",
        FILE=pipeline.path.name,
    )
    end = "networks:\n  stream:\n\nvolumes:\n" + "".join(f"  {volume}:\n" for volume in volumes)
    return (
        about
        + head
        + _filled(_TOPICS, FILE=pipeline.path.name, FOLDER=folder)
        + "".join(services)
        + _filled(
            _DASHBOARD,
            FILE=pipeline.path.name,
            FOLDER=folder,
            PROCESSES="".join(
                f"      - --process={service}/{process}={_names(service, process)[0]}:9100\n"
                for service, process in pipeline.own_processes()
            ),
        )
        + end
    )


def _names(service: str, process: str) -> tuple[str, str]:
    """Return the names of a process's container and of its volume.

    The nodes of a participant share one volume, so that replicas find their peers' checkpoints.
    """
    words = process.replace("_", "-").replace(".", "-")
    if service == "consistency_manager":
        return "consistency-manager", "consistency-manager-state"
    if service == "processing":
        return (
            f"node-{words}",
            f"nodes-{process.rpartition('.')[0].replace('_', '-') or words}-state",
        )
    service = service.replace("_", "-")
    return f"{service}-{words}", f"{service}-{words}-state"


def _filled(template: str, **values: str) -> str:
    """Return ``template`` with each ``@NAME@`` replaced. ``$`` and braces are Compose's own."""
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template
