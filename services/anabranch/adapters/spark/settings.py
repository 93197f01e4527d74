"""Settings of a stage's Spark, by environment: ``ANABRANCH_SPARK_MASTER`` and so on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from anabranch.adapters.secret_files import secret_of
from anabranch.pipeline.model import MASTER, MASTER_FORMS, Resources
from anabranch.protocol.limits import BATCH_ROWS_MAX, CORES_MAX

Compilers = Literal["quick", "full"]


class SparkSettings(BaseSettings):
    """What may differ from machine to machine. None of it changes a result, but
    ``state_partitions`` is fixed for a checkpoint's life.
    """

    model_config = SettingsConfigDict(env_prefix="ANABRANCH_SPARK_", extra="ignore", frozen=True)

    master: str = "local[2]"
    """Where tasks run: in this process, or on a cluster (``adapters.spark.cluster``)."""
    cores: int | None = Field(default=None, ge=1, le=CORES_MAX)
    """Of a cluster, that this node's executors take together; None: all."""
    secret: SecretStr | None = None
    secret_file: Path | None = None
    """Of a cluster whose machines prove to each other that they are of it."""
    memory: str = Field(default="1g", pattern=r"^[0-9]+[mg]$")
    state_partitions: int = Field(default=1, ge=1, le=1_000)
    """One is cheapest for small batches; more let more cores work on large state."""
    pace_ms: int = Field(default=0, ge=0, le=10_000)
    """Least time between the starts of two batches of a query: fewer, larger batches where
    many replicas share few cores.
    """
    batch_rows_max: int = Field(default=BATCH_ROWS_MAX, ge=1)
    splits_max: int = Field(default=2, ge=1, le=1_000)
    compilers: Compilers = "full"
    """Of Java. ``quick``: only the quick one, cheapest to start and in the first minutes. ``full``:
    also the optimising one, which takes minutes of processor time until it has compiled what small
    batches need, and gives them, and large ones, for less from then on.
    """

    @field_validator("master")
    @classmethod
    def _known(cls, master: str) -> str:
        if not re.match(MASTER, master):
            message = f"{master} is no master that a node can have: {MASTER_FORMS}"
            raise ValueError(message)
        return master

    def cluster_secret(self) -> str | None:
        """Raises ConfigurationError: its file cannot be read, or is open to others."""
        return secret_of(self.secret, self.secret_file, "ANABRANCH_SPARK_SECRET")

    def with_resources(self, resources: Resources) -> SparkSettings:
        """As the pipeline file says of a node. What the environment says counts more: it is
        of this machine.
        """
        cores, master = resources.cores, resources.master
        given = {
            "memory": resources.memory,
            "master": f"local[{cores}]" if master is None and cores is not None else master,
            "cores": cores if master is not None else None,
        }
        return self.model_copy(
            update={
                name: value
                for name, value in given.items()
                if value is not None and name not in self.model_fields_set
            }
        )
