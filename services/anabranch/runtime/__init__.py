"""How a service process runs: settings, logs, health, metrics, the loop, and an orderly end.

Nothing here knows an adapter: a service's ``__main__`` hands over the function that connects
(``adapters.connect``).
"""
