"""Frame of every service process: settings, the loop, logs, metrics, health, and an orderly end.

Nothing here imports an adapter: a service's ``__main__`` passes the function that connects
(``adapters.connect``).
"""
