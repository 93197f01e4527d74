"""The rules of the federation: what participants agree, what load may move between them and at what
price, and who owes what.

Money is in whole micro-units, prices in micro-units per unit of load and second, load in whole
units. Nothing here is a float.
"""
