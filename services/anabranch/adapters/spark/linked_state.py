"""Local file system for Hadoop that links the files of a state where Hadoop's own copies them, so
that results do not wait for a copy of the state.

Before the first batch of a query Spark copies all files of its state from the checkpoint into the
folder in which RocksDB works. Hadoop compares the checksums of what it reads, and computes them
anew for what it writes. That takes more than a millisecond of processor time for each MB of state,
and as much room again on the disk, at every start, fork, failover and move, while results wait.

A hard link does the same where both folders are on one file system. RocksDB never changes a
finished file: its own snapshots, which Spark uploads while RocksDB continues, are hard links of the
same files. Spark and RocksDB remove a file by its name, which keeps the content under the other
name. Across file systems the files are copied; so they are on the executors of a cluster, which do
not have this class.

What finds damage: a start compares all files with their checksums before Spark begins the query
(``adapters.disk.spark_checkpoint_files``), and RocksDB compares the checksum of each block that it
reads. At a fork nothing but RocksDB reads the files again: this process has written them, or
compared them at its start, and a loss of power ends it. Files of other kinds are copied, and
compared, as before. What Spark writes into a checkpoint is copied, too, and gets its checksums.

Spark compiles the code of its plans by Janino while it runs, and so does this module: the package
needs no Java compiler and contains no Java classes.
"""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS: Final = "anabranch.LinkingFileSystem"
"""Name of the class that ``_SOURCE`` defines."""

_SOURCE: Final = Template("""
package anabranch;

import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.fs.Path;

public class LinkingFileSystem extends $superclass {
    @Override
    public void copyToLocalFile(boolean delete, Path source, Path target) throws IOException {
        // Only files that RocksDB has finished: Spark keeps them in this folder of a checkpoint.
        if (!delete && "SSTs".equals(source.getParent().getName())) {
            try {
                Files.createLink(pathToFile(target).toPath(), pathToFile(source).toPath());
                return;
            } catch (IOException e) {
                // Another file system, or too many links: the copy reports any other reason.
            } catch (UnsupportedOperationException e) {
                // A file system without hard links.
            }
        }
        super.copyToLocalFile(delete, source, target);
    }
}
""")
"""Source of the class, in the Java that Janino knows: without lambdas and alternatives in
``catch``.
"""


def install(session: SparkSession) -> None:
    """Make Hadoop use a file system that links the files of states, for all local paths and all
    queries of this Java. Idempotent.

    Call it before the first query: a query that has the previous file system continues with it.
    """
    context = session.sparkContext
    java = context._jvm  # noqa: SLF001 - PySpark offers no other way
    configuration = java.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())  # noqa: SLF001
    files = java.org.apache.hadoop.fs.FileSystem
    present = files.getLocal(configuration)
    if present.getClass().getName() == _CLASS:
        return
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(present.getClass().getClassLoader())
    compiler.cook(_SOURCE.substitute(superclass=present.getClass().getName()))
    configuration.setClassLoader(compiler.getClassLoader())
    configuration.set("fs.file.impl", _CLASS)
    # Closing it removes it from Hadoop's cache of file systems. The next request creates the one
    # that its configuration names; all later requests get that one, whatever theirs name.
    present.close()
    files.getLocal(configuration)
