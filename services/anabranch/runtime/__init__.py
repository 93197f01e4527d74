"""Runtime of the service processes: settings, logs, health, metrics, the loop, and an orderly end;
readers and writers of the logs that several services share.

Nothing here imports an adapter: a service's ``__main__`` passes the function that connects
(``adapters.connect``).
"""
