"""Figures of published papers, measured on what is here."""
