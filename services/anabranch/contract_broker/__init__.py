"""Contract broker of a participant: keeps its book of contracts and settles what is due. Nothing
depends on its speed.
"""
