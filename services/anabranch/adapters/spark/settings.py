"""Settings of a stage's Spark, from environment variables: ``ANABRANCH_SPARK_MASTER`` and so on."""

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
    """Settings that may differ from machine to machine. None changes a result, but
    ``state_partitions`` is fixed for a checkpoint's life.
    """

    model_config = SettingsConfigDict(env_prefix="ANABRANCH_SPARK_", extra="ignore", frozen=True)

    master: str = "local[2]"
    """Place where tasks run: this process, or a cluster (``adapters.spark.cluster``)."""
    cores: int | None = Field(default=None, ge=1, le=CORES_MAX)
    """Number of a cluster's cores that this node's executors take together; None for all."""
    secret: SecretStr | None = None
    secret_file: Path | None = None
    """File with the secret by which a cluster's machines authenticate each other."""
    memory: str = Field(default="1g", pattern=r"^[0-9]+[mg]$")
    state_partitions: int = Field(default=1, ge=1, le=1_000)
    """Number of partitions of a stage's state. One is cheapest for small batches; more let more
    cores work on large state.
    """
    pace_ms: int = Field(default=0, ge=0, le=10_000)
    """Minimum time between the starts of two batches of a query, in ms: longer gives fewer, larger
    batches, for many replicas on few cores.
    """
    batch_rows_max: int = Field(default=BATCH_ROWS_MAX, ge=1)
    splits_max: int = Field(default=2, ge=1, le=1_000)
    compilers: Compilers = "full"
    """Compilers of Java. ``quick``: only the quick one, cheapest at the start and in the first
    minutes. ``full``: also the optimising one, which takes minutes of processor time until it has
    compiled what small batches need; from then on batches of any size cost less.
    """

    @field_validator("master")
    @classmethod
    def _known(cls, master: str) -> str:
        """Check the form of the master's address."""
        if not re.match(MASTER, master):
            message = f"{master} is not a master that a node can use: {MASTER_FORMS}"
            raise ValueError(message)
        return master

    def cluster_secret(self) -> str | None:
        """Return the secret of the cluster; None if there is none. Raises ConfigurationError if its
        file cannot be read, or is readable by others.
        """
        return secret_of(self.secret, self.secret_file, "ANABRANCH_SPARK_SECRET")

    def with_resources(self, resources: Resources) -> SparkSettings:
        """Return the settings with those that the pipeline file gives a node. The environment takes
        precedence: it describes this machine.
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
