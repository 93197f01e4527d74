"""The rules: pure, standard library only, no clock, no randomness, no input or output.

Numbers of rules ("rule 4") are those of the protocol model that all this is derived from; each is restated where it is implemented.
"""
