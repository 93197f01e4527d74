"""Files, logs and tables of a federation that several services and commands share: contracts as
files state them, readers of the federation's logs, and the commands that write to them.

The rules of contracts are in ``protocol.federation``; the section of the pipeline file that names
the federation is read by ``pipeline.federation``.
"""
