"""The rules: pure, standard library only, no clock, no randomness, no input or output.

Numbers of rules ("rule 4") are those of docs/protocol.md; each is restated where it is implemented.
"""
