"""The web page of a pipeline, ``anabranch ui``: graph, timelines, delays, dead letters, market.

Followers read Kafka and the processes' ports in threads of their own (``topics``, ``processes``,
``dead_letters``, ``market``), and feed one ``Page``. ``server`` sends the page's state and changes
to browsers. It is read-only: nothing in the pipeline depends on it, or waits for it.
"""
